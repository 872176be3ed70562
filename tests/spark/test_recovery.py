"""A restart with a damaged store, a changed pipeline or an unusable store does no harm.

Each job is stopped in the middle and run again; whatever is refused changes nothing but the claim.
"""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.driver.events import (
    CheckpointCompleted,
    GenerationFailed,
    GenerationStarted,
    JobEvent,
)
from laminar_core.driver.options import JobResult
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    LaminarError,
)
from laminar_core.jobs.payments import pipeline
from laminar_core.operators import agg, windows
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.records.damage import DamagedFile
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.jobs_under_test import SmallJob

pytestmark = pytest.mark.spark

CHECKPOINTS_BEFORE_STOP = 3


class Runner:
    """Runs the small job in the shared session, and keeps its events."""

    def __init__(self, spark: SparkSession, job: SmallJob) -> None:
        self.spark = spark
        self.job = job
        self.events: list[JobEvent] = []

    def run(self, built: Pipeline | None = None, **options: object) -> JobResult:
        self.events.clear()
        options = {"workers": 2, "restart": NoRestart(), **options}
        built = built or pipeline(self.job.input, self.job.output)
        return built.run(
            self.spark,
            checkpoint=CheckpointConfig(self.job.store, interval="100 milliseconds"),
            run=RunConfig(**options),
            listener=self.events.append,
        )

    def run_half(self) -> list[int]:
        """Run until some checkpoints are complete, stop; return the ids of all of them."""
        seen = threading.Semaphore(0)

        def listen(event: JobEvent) -> None:
            if isinstance(event, CheckpointCompleted):
                seen.release()

        running = pipeline(self.job.input, self.job.output, rows_per_second=20_000).start(
            self.spark,
            checkpoint=CheckpointConfig(self.job.store, interval="100 milliseconds"),
            run=RunConfig(workers=2),
            listener=listen,
        )
        for _ in range(CHECKPOINTS_BEFORE_STOP):
            assert seen.acquire(timeout=60)
        running.stop()
        assert running.result(timeout_s=60).outcome == "stopped"
        return list(self.store.manifests.ids())

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore.open(self.job.store, "payments")

    def file(self, relative: str) -> Path:
        return Path(self.job.store) / "payments" / relative

    @property
    def starts(self) -> list[GenerationStarted]:
        return [event for event in self.events if isinstance(event, GenerationStarted)]

    @property
    def started(self) -> GenerationStarted:
        return self.starts[0]

    def assert_exact(self) -> None:
        expected = self.job.expected()
        assert self.job.committed() == expected
        assert self.job.visible() == expected


@pytest.fixture
def runner(spark: SparkSession, tmp_path: Path) -> Runner:
    return Runner(spark, SmallJob(tmp_path).write_input())


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_stopped_job_continues_and_a_finished_one_ends_at_once(runner: Runner) -> None:
    newest = runner.run_half()[-1]
    assert runner.run().outcome == "finished"
    assert runner.started.restored_checkpoint_id == newest
    runner.assert_exact()

    assert runner.run().rows_in == runner.started.rows_total
    runner.assert_exact()


def test_a_corrupt_state_file_costs_one_checkpoint_and_is_named(runner: Runner) -> None:
    *_, before, newest = runner.run_half()
    state = runner.store.manifests.read(newest).files()[-1]
    damage(runner.file(state.path))

    runner.run()  # It costs no restart: there is none.

    found, restarted = runner.starts
    assert (found.restored_checkpoint_id, restarted.restored_checkpoint_id) == (newest, before)
    (ended,) = (e for e in runner.events if isinstance(e, GenerationFailed))
    assert (ended.generation, ended.code) == (found.generation, "corrupt")
    assert ended.damaged_file == DamagedFile(path=state.path, problem="digest")
    assert [r.checkpoint_id for r in restarted.rejected] == [newest]
    assert state.path in restarted.rejected[0].reason
    runner.assert_exact()


def test_a_corrupt_manifest_costs_one_checkpoint_and_is_named(runner: Runner) -> None:
    *_, before, newest = runner.run_half()
    runner.file(f"checkpoints/{newest:010d}/manifest.json").write_text("{")

    runner.run()

    assert runner.started.restored_checkpoint_id == before
    assert runner.started.rejected[0].checkpoint_id == newest
    runner.assert_exact()


def test_a_job_without_a_usable_checkpoint_is_refused_and_starts_fresh_only_if_told(
    runner: Runner,
) -> None:
    for checkpoint_id in runner.run_half():
        runner.file(f"checkpoints/{checkpoint_id:010d}/manifest.json").write_text("{")

    with pytest.raises(CorruptCheckpointError) as refused:
        runner.run()
    assert refused.value.code is ErrorCode.NO_RESTORABLE_CHECKPOINT
    assert "\n" not in str(refused.value)

    runner.run(allow_fresh=True)
    assert runner.started.restored_checkpoint_id is None
    runner.assert_exact()


def test_going_back_to_an_older_checkpoint_withdraws_what_came_after(runner: Runner) -> None:
    first = runner.run_half()[0]
    runner.run(restore_id=first)
    assert runner.started.restored_checkpoint_id == first
    runner.assert_exact()


def other_window(job: SmallJob) -> Pipeline:
    changed = Pipeline("payments")
    (
        changed.source("payments", ParquetSource(job.input))
        .watermark("paid_at", max_delay="1 minute")
        .key_by("merchant")
        .window(windows.tumbling("10 minutes"))
        .aggregate("per-merchant", agg.count(name="payments"))
        .sink("totals", ParquetSink(job.output))
    )
    return changed


def refusal(runner: Runner, built: Pipeline | None = None, **options: object) -> LaminarError:
    """Run, expect one clear line, and see that nothing but the claim and its records changed."""
    before = stored(runner)
    visible = runner.job.visible()
    with pytest.raises(ConfigurationError) as refused:
        runner.run(built, **options)
    assert stored(runner) == before
    assert runner.job.visible() == visible
    assert "\n" not in str(refused.value)
    return refused.value


def test_changed_operators_are_refused_with_the_difference(runner: Runner) -> None:
    runner.run_half()
    error = refusal(runner, other_window(runner.job))
    assert error.code is ErrorCode.OPERATORS_CHANGED
    assert "per-merchant" in str(error)
    runner.run()
    runner.assert_exact()


def test_more_workers_than_slots_are_refused(runner: Runner) -> None:
    assert refusal(runner, workers=64).code is ErrorCode.NOT_ENOUGH_SLOTS


def test_a_checkpoint_that_does_not_exist_is_refused(runner: Runner) -> None:
    runner.run_half()
    assert "9999" in str(refusal(runner, restore_id=9999))


def test_a_store_that_cannot_be_written_is_refused(runner: Runner) -> None:
    for unusable in ("/proc/laminar", str(Path(runner.job.input) / "payments-000.parquet")):
        with pytest.raises(LaminarError) as refused:
            pipeline(runner.job.input, runner.job.output).run(
                runner.spark, checkpoint=CheckpointConfig(unusable), run=RunConfig(workers=2)
            )
        assert unusable in str(refused.value)
        assert refused.value.exit_code in (2, 4)


def test_output_of_another_run_is_not_mixed_with(runner: Runner, tmp_path: Path) -> None:
    runner.run()
    with pytest.raises(ConfigurationError, match="output of another run"):
        pipeline(runner.job.input, runner.job.output).run(
            runner.spark,
            checkpoint=CheckpointConfig(str(tmp_path / "another-store")),
            run=RunConfig(workers=2),
        )
    runner.assert_exact()


def stored(runner: Runner) -> dict[Path, bytes]:
    """Every file of the store but claims, and the audit log of them."""
    files = (path for path in Path(runner.job.store).rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in files if not {"generations", "audit"} & set(p.parts)}
