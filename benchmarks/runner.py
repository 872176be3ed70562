"""The benchmarks for ``laminar bench`` by name, and their results."""

from collections.abc import Iterable, Iterator

from benchmarks import (
    aggregation,
    backpressure,
    connections,
    coordination,
    division,
    formats,
    hot_key,
    inflight,
    inflight_files,
    inflight_recovery,
    join_operators,
    joins,
    kafka,
    kafka_to_kafka,
    kept,
    manifest_size,
    micro,
    payments,
    payments_beside,
    recovery,
    simulated_workers,
    small,
    start,
    state,
    state_growth,
    storage,
    ten_operators,
    transports,
    unaligned,
    worker_growth,
)
from benchmarks.machine import this_machine
from benchmarks.measuring import Benchmark, Tell, measure
from benchmarks.record import Record
from benchmarks.summary import HEADINGS, lines

_ALL = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("alignment", micro.alignment),
        Benchmark("coordination", coordination.coordination),
        Benchmark("coordination-growth", coordination.coordination_growth),
        Benchmark("connections", connections.connections),
        Benchmark("simulated-workers", simulated_workers.simulated_workers),
        Benchmark("wire", micro.wire),
        Benchmark("division", division.division),
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
        Benchmark("state-growth", state_growth.state_growth),
        Benchmark("kept", kept.kept),
        Benchmark("start", start.start),
        Benchmark("payments", payments.throughput),
        Benchmark("payments-beside", payments_beside.beside),
        Benchmark("generator", payments_beside.generator),
        Benchmark("payments-keys", payments_beside.keys),
        Benchmark("payments-workers", payments_beside.workers),
        Benchmark("backpressure", backpressure.checkpoints),
        Benchmark("workers", worker_growth.workers),
        Benchmark("unaligned-recovery", backpressure.recovery),
        Benchmark("worker-recovery", recovery.worker),
        Benchmark("driver-recovery", recovery.driver),
        Benchmark("standby-recovery", recovery.standby),
    )
}


def descriptions() -> dict[str, str]:
    """Name and one line for each benchmark."""
    return {name: benchmark.description for name, benchmark in _ALL.items()}


def summary(records: Iterable[Record]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows of what is wanted, as far as these records have it."""
    found = {record.benchmark: record for record in records}
    return HEADINGS, lines(found, missing=False)


def run(names: Iterable[str], tell: Tell, repeat: int = 1) -> Iterator[Record]:
    """Run these, one after the other; each record comes when its benchmark has ended.

    Args:
        names: the benchmarks.
        tell: gets a progress message per run.
        repeat: how often each of them runs.
    """
    machine = this_machine()
    for name in names:
        yield measure(_ALL[name], machine, tell, repeat)
