"""In Spark: one of two sources is removed and returns, with other numbers of workers: no loss.

Each run is a driver of its own in one session, and is stopped with a last checkpoint.
"""

from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence
from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted, JobEvent
from laminar_core.driver.options import JobResult
from laminar_core.driver.restart import NoRestart
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore

pytestmark = pytest.mark.spark

ROWS = 6_000
STARTS = {"shops": 0, "online": 1_000_000}


class Runs:
    """The runs of one job; every run may have other sources."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.store, self.output = str(folder / "store"), str(folder / "output")
        self.started: list[GenerationStarted] = []

    def pipeline(self, names: tuple[str, ...], pace: int | None) -> Pipeline:
        p = Pipeline("payments")
        first, *others = (
            p.source(
                name,
                DatagenSource(
                    {
                        "id": Sequence(STARTS[name]),
                        "ts": EventTime(1_699_999_200_000_000, step_us=1_000_000),
                    },
                    rows=ROWS,
                    splits=3,
                    batch_rows=100,
                ),
                rows_per_second=pace,
            ).watermark("ts", name=f"{name}-time")
            for name in names
        )
        return first.union(*others, name="all").sink("out", ParquetSink(self.output))

    def run(self, *names: str, workers: int, until: int | None = 1) -> JobResult:
        """Run until this number of checkpoints is complete, and stop; None: run to the end."""
        completed: SimpleQueue[CheckpointCompleted] = SimpleQueue()

        def listen(event: JobEvent) -> None:
            if isinstance(event, GenerationStarted):
                self.started.append(event)
            elif isinstance(event, CheckpointCompleted):
                completed.put(event)

        running = self.pipeline(names, None if until is None else ROWS // 8).start(
            self.spark,
            checkpoint=CheckpointConfig(self.store, interval="100 milliseconds"),
            run=RunConfig(workers=workers, restart=NoRestart()),
            listener=listen,
        )
        for _ in range(until or 0):
            completed.get(timeout=60)
        if until is not None:
            running.stop()
        return running.result(timeout_s=60)

    def newest(self) -> CheckpointManifest:
        manifests = CheckpointStore.open(self.store, "payments").manifests
        return manifests.read(manifests.ids()[-1])


def test_a_source_is_removed_and_continues_when_it_returns(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = Runs(spark, tmp_path)
    assert runs.run("shops", "online", workers=2).outcome == "stopped"
    with_both = runs.newest()
    assert runs.run("shops", workers=1).outcome == "stopped"
    without = runs.newest()
    assert {o: c.checkpoint_id for o, c in without.carried.items()} == dict.fromkeys(
        ("online", "online-time"), with_both.checkpoint_id
    )
    assert (without.workers, without.parallelism["online"]) == (1, 2)
    assert runs.run("shops", "online", workers=2, until=None).outcome == "finished"
    assert runs.newest().carried == {}
    assert [e.restored_workers for e in runs.started] == [None, 2, 1]
    found = sorted(read_committed(runs.output).column("id").to_pylist())
    assert found == sorted(start + n for start in STARTS.values() for n in range(ROWS))
