"""The benchmarks for ``laminar bench`` by name, and their results."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks import (
    aggregation,
    backpressure,
    coordination,
    formats,
    hot_key,
    inflight,
    inflight_files,
    inflight_recovery,
    join_operators,
    joins,
    kafka,
    kafka_to_kafka,
    manifest_size,
    micro,
    payments,
    recovery,
    small,
    state,
    storage,
    ten_operators,
    transports,
    unaligned,
)
from benchmarks.result import Result

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A function that measures; it may give several results at once."""

    name: str
    measure: Callable[[], list[Result]]

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (self.measure.__doc__ or "").splitlines()[0]


_ALL = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("alignment", micro.alignment),
        Benchmark("coordination", coordination.coordination),
        Benchmark("wire", micro.wire),
        Benchmark("transports", transports.transports),
        Benchmark("aggregation", micro.aggregation),
        Benchmark("sessions", micro.sessions),
        Benchmark("rows", micro.rows),
        Benchmark("small", small.small),
        Benchmark("join-operators", join_operators.operators),
        Benchmark("hot-key", hot_key.hot_key),
        Benchmark("skew", hot_key.skew),
        Benchmark("joins", joins.joins),
        Benchmark("snapshot", micro.snapshot),
        *(
            Benchmark(measure.__name__, measure)
            for measure in (*aggregation.ALL, *inflight.ALL, *unaligned.ALL)
        ),
        Benchmark("checkpoint-10-operators", ten_operators.bench_checkpoint_10_operators),
        Benchmark("inflight-files", inflight_files.inflight_files),
        Benchmark("manifest-size", manifest_size.manifest_size),
        Benchmark("recovery-overhead", inflight_recovery.bench_unaligned_recovery_overhead),
        Benchmark("storage", storage.storage),
        Benchmark("formats", formats.formats),
        Benchmark("kafka", kafka.kafka),
        Benchmark("kafka-to-kafka", kafka_to_kafka.kafka_to_kafka),
        Benchmark("state", state.state),
        Benchmark("payments", payments.throughput),
        Benchmark("backpressure", backpressure.checkpoints),
        Benchmark("unaligned-recovery", backpressure.recovery),
        Benchmark("worker-recovery", recovery.worker),
        Benchmark("driver-recovery", recovery.driver),
        Benchmark("standby-recovery", recovery.standby),
    )
}


def descriptions() -> dict[str, str]:
    """Name and one line for each benchmark."""
    return {name: benchmark.description for name, benchmark in _ALL.items()}


def run(names: Iterable[str], tell: Tell) -> list[Result]:
    """Run these, one after the other; ``tell`` gets a progress message per benchmark."""
    results: list[Result] = []
    for name in names:
        tell(f"{name}: {_ALL[name].description}")
        results.extend(_ALL[name].measure())
    return results
