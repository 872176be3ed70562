"""Whole jobs of many workers in the simulator: what each checkpoint writes, and exact results.

    python -m benchmarks.simulated_workers 256 1000

simulates these numbers of workers. Everything runs in one thread, and an exchange has the square of
the workers in channels: 1,000 workers need half an hour and some gigabytes.
"""

from collections import Counter
from collections.abc import Iterator
from time import process_time

import click
import pyarrow as pa

from benchmarks.result import Result
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.simulation import Simulation

WORKERS = (2, 4, 8, 16, 32, 64)
MAX_PARALLELISM = 128
"""The key groups of a job of up to so many workers; with more workers there are as many."""
ROWS_PER_WORKER, BATCH_ROWS, KEYS = 512, 256, 4_096
_INTERVAL_MS = 30
_TURNS_MAX = 10**9
_OF_A_WORKER = "-worker-"
_MANIFEST = "manifest.json"


class WrongTotalsError(Exception):
    """A simulated job did not count each row once."""


def simulated_workers() -> list[Result]:
    """Requests and manifests of checkpoints of 2 to 64 simulated workers, with exact results."""
    return [result for workers in WORKERS for result in simulated(workers)]


def simulated(workers: int) -> Iterator[Result]:
    """Run a keyed aggregation with so many workers, and yield its figures.

    Raises:
        WrongTotalsError: its output is not exact.
    """
    ledger = Ledger()
    simulation = Simulation(
        _pipeline(workers, ledger).plan(),
        parallelism=workers,
        seed=1,
        checkpoint=CoordinatorConfig(interval_ms=_INTERVAL_MS),
        turns_max=_TURNS_MAX,
    )
    written: Counter[bool] = Counter()
    manifests: list[int] = [0]

    def see(call: StoreCall) -> None:
        if call.moment == "after" and call.verb in ("put", "put_if_absent"):
            written[_OF_A_WORKER in call.process] += 1
            if call.key.endswith(_MANIFEST):
                manifests.append(len(call.data))

    simulation.observers.append(see)
    began_s = process_time()
    result = simulation.run_to_end()
    cpu_s = process_time() - began_s
    counted = sum(int(str(row["n"])) for row in ledger.rows())
    if counted != workers * ROWS_PER_WORKER:
        raise WrongTotalsError(f"{workers} workers counted {counted} rows")
    name = f"simulated_{workers}_workers"
    checkpoints = result.checkpoints
    yield Result(f"{name}_checkpoints", checkpoints, "checkpoints", "higher")
    yield Result(f"{name}_puts", written[True] / checkpoints, "requests/checkpoint", "lower")
    yield Result(f"{name}_manifest", max(manifests), "bytes", "lower")
    yield Result(f"{name}_simulation", cpu_s, "s CPU", "lower")


def _pipeline(workers: int, ledger: Ledger) -> Pipeline:
    pipeline = Pipeline("simulated", max_parallelism=max(workers, MAX_PARALLELISM))
    source = MemorySource([_rows(seed) for seed in range(workers)], batch_rows=BATCH_ROWS)
    (
        pipeline.source("in", source)
        .watermark("t", max_delay="1 second")
        .key_by("k")
        .window(windows.tumbling("10 seconds"))
        .aggregate("totals", agg.count(name="n"))
        .sink("out", LedgerSink(ledger))
    )
    return pipeline


def _rows(seed: int) -> pa.Table:
    numbers = range(ROWS_PER_WORKER)
    times = pa.array([1_000 * n for n in numbers], pa.timestamp("us", tz="UTC"))
    return pa.table({"k": pa.array([(7_919 * n + seed) % KEYS for n in numbers]), "t": times})


@click.command()
@click.argument("workers", type=click.IntRange(min=2), nargs=-1, required=True)
def main(workers: tuple[int, ...]) -> None:
    """Simulate jobs with so many WORKERS, one after the other."""
    for count in workers:
        for result in simulated(count):
            click.echo(f"{result.name}: {result.value:,.1f} {result.unit}")


if __name__ == "__main__":
    main()
