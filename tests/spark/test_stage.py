"""Workers as a stage of a real Spark: they start, hand over, say why they die, get killed."""

import gc
import importlib
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.driver.events import GenerationFailed, NotEncrypted, WorkersRunning
from laminar_core.driver.restart import FixedDelay, NoRestart
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, JobFailedError
from laminar_core.host.clock import SystemClock
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.spark import stage
from laminar_core.spark.sessions import GivenSession
from laminar_core.spark.stage import SparkCluster, SparkStage, WorkerTask, facts_of
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.job_status import read_status
from tests.records.manifests import manifest
from tests.worker.deployments import deployment

pytestmark = pytest.mark.spark

ROWS = 2_000


def numbers(*, rows: int | None = ROWS, **options) -> Pipeline:
    """Numbers, dealt out to two workers and collected."""
    p = Pipeline("numbers")
    source = DatagenSource({"n": Sequence()}, rows=rows, splits=2, batch_rows=100)
    p.source("in", source, **options).rebalance().sink("out", CollectSink())
    return p


def run(pipeline: Pipeline, spark: SparkSession, store: Path, restart=None, **options):
    config = RunConfig(workers=2, restart=restart or NoRestart())
    checkpoint = CheckpointConfig(str(store), interval="100 milliseconds")
    return pipeline.run(spark, checkpoint=checkpoint, run=config, **options)


@pytest.mark.parametrize("restored", [None, manifest()])
def test_each_worker_unpacks_its_own_deployment(restored):
    """Goal: the task has everything, survives Spark's pickling, and deals it out."""
    whole = deployment(restored)
    task = cloudpickle.loads(cloudpickle.dumps(WorkerTask.of(whole)))
    assert [task.deployment_of(n) for n in range(2)] == list(whole.of_workers())


def test_collected_rows_come_back_through_the_stage(spark, tmp_path):
    result = run(numbers(), spark, tmp_path)
    assert sorted(result.collected["out"].column("n").to_pylist()) == list(range(ROWS))


def test_a_worker_looks_for_no_garbage_among_what_is_loaded(spark, tmp_path):
    def frozen(batch: pa.RecordBatch) -> pa.RecordBatch:
        counts = pa.array([gc.get_freeze_count()] * batch.num_rows, pa.int64())
        return pa.record_batch({"frozen": counts})

    p = Pipeline("freezing")
    source = DatagenSource({"n": Sequence()}, rows=10, splits=2)
    p.source("in", source).map(frozen).sink("out", CollectSink())
    assert min(run(p, spark, tmp_path).collected["out"]["frozen"].to_pylist()) > 10_000


def test_a_killed_worker_costs_a_restart_and_no_row(spark, tmp_path):
    killed = []

    def kill_the_first(event) -> None:
        if isinstance(event, WorkersRunning) and not killed:
            killed.append(event.pids[1])
            os.kill(event.pids[1], signal.SIGKILL)

    result = run(
        numbers(rows_per_second=10_000), spark, tmp_path, FixedDelay(1), listener=kill_the_first
    )
    assert (len(killed), result.generations) == (1, 2)
    assert sorted(result.collected["out"].column("n").to_pylist()) == list(range(ROWS))


def test_a_worker_that_fails_says_so_in_its_own_words(spark, tmp_path):
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise DataError(ErrorCode.NULL_KEY, "row 7 has no key")
        return batch

    p = Pipeline("failing")
    source = DatagenSource({"n": Sequence()}, rows=10, splits=2)
    p.source("in", source).map(fail).sink("out", CollectSink())
    with pytest.raises(DataError, match=r"worker \d: row 7 has no key$"):
        run(p, spark, tmp_path)


def test_a_module_that_workers_do_not_find_ends_the_job_at_once(spark, tmp_path, monkeypatch):
    (tmp_path / "beside_the_program.py").write_text("def same(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(tmp_path)
    same = importlib.import_module("beside_the_program").same
    p = Pipeline("importing")
    p.source("in", DatagenSource({"n": Sequence()}, rows=10)).map(same).sink("out", CollectSink())
    failed = []

    def note(event) -> None:
        if isinstance(event, GenerationFailed):
            failed.append((event.code, event.restart_in_ms))

    with pytest.raises(ConfigurationError, match="import module beside_the_program") as caught:
        run(p, spark, tmp_path / "store", FixedDelay(5), listener=note)
    assert caught.value.code is ErrorCode.NOT_IMPORTABLE
    assert failed == [("not-importable", None)]
    status = read_status(CheckpointStore.open(str(tmp_path / "store"), "importing"), 0)
    assert status.driver is not None
    assert status.driver.outcome == "refused"


def test_a_job_that_is_cancelled_leaves_no_stage_behind(spark, tmp_path):
    p = numbers(rows=None, rows_per_second=1_000)
    jobs = []

    def cancel(event) -> None:
        if isinstance(event, WorkersRunning):
            jobs[0].cancel()

    checkpoint = CheckpointConfig(str(tmp_path))
    jobs.append(p.start(spark, checkpoint=checkpoint, run=RunConfig(workers=2), listener=cancel))
    with pytest.raises(JobFailedError, match="cancelled"):
        jobs[0].result(60)
    assert list(spark.sparkContext.statusTracker().getActiveStageIds()) == []


def test_more_workers_than_slots_are_refused_at_once(spark):
    cluster = SparkCluster(GivenSession(spark), "auto", SystemClock())
    slots = spark.sparkContext.defaultParallelism
    assert cluster.slots == slots
    assert cluster.check(slots) == ()
    with pytest.raises(ConfigurationError, match=f"Spark has {slots}") as caught:
        cluster.check(slots + 1)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_SLOTS


class Conf:
    """Settings of a session that is none of ours."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def get(self, name: str, default: str | None) -> str | None:
        return self._settings.get(name, default)


def cluster_with(settings: dict[str, str], **options) -> SparkCluster:
    """Return the facts about a cluster with these settings, which does not report its slots."""
    session = SimpleNamespace(conf=Conf({"spark.master": "spark://x:1", **settings}))
    return SparkCluster(GivenSession(session), "auto", SystemClock(), **options)


def test_a_cluster_that_does_not_encrypt_is_warned_of():
    (warning,) = cluster_with({}).check(2)
    assert isinstance(warning, NotEncrypted)
    assert warning.missing == ("spark.authenticate", "spark.network.crypto.enabled")
    safe = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    assert cluster_with(safe).check(2) == ()


def test_a_cluster_that_does_not_encrypt_is_refused_if_it_has_to():
    cluster = cluster_with({}, encryption_required=True)
    with pytest.raises(ConfigurationError, match=r"spark\.authenticate is not true") as caught:
        cluster.check(2)
    assert caught.value.code is ErrorCode.NOT_ENCRYPTED


def test_a_session_of_spark_connect_is_refused_by_name():
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        facts_of(session)


class Waiting:
    """A session that has too few slots at first; it notes what it is asked to run."""

    def __init__(self) -> None:
        self.submitted: list[int] = []

    @property
    def sparkContext(self) -> "Waiting":  # noqa: N802 - as Spark calls it
        return self

    def parallelize(self, _: object, tasks: int) -> object:
        self.submitted.append(tasks)
        raise OSError("the test runs nothing")

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        del tag

    cancelJobsWithTag = addJobTag  # noqa: N815


def stage_with_slots(monkeypatch: pytest.MonkeyPatch, *slots: int | None):
    answers = iter(slots)
    monkeypatch.setattr(stage, "slots_of", lambda _: next(answers, slots[-1]))
    session = Waiting()
    return session, SparkStage(session, deployment(None))


def test_a_stage_that_waits_for_slots_ends_with_its_generation(monkeypatch):
    """Spark would run it when there are slots, in the way of the next generation."""
    session, waiting = stage_with_slots(monkeypatch, 0, 1)
    assert not waiting.ended.done()
    waiting.interrupt()
    with pytest.raises(JobFailedError, match=r"Spark has [01] task slots for 2 workers") as caught:
        waiting.ended.result(60)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_SLOTS
    assert session.submitted == []


@pytest.mark.parametrize("slots", [(0, 1, 2), (2,), (None,), (0, None)])
def test_a_stage_is_submitted_once_there_are_slots_or_nothing_is_known(monkeypatch, slots):
    session, submitted = stage_with_slots(monkeypatch, *slots)
    with pytest.raises(JobFailedError):
        submitted.ended.result(60)
    assert session.submitted == [2]
