"""Workers as a stage of a real Spark: they start, hand over, say why they die, get killed."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.driver.events import NotEncrypted, WorkersRunning
from laminar_core.driver.restart import FixedDelay, NoRestart
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, JobFailedError
from laminar_core.host.clock import SystemClock
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.spark.sessions import GivenSession
from laminar_core.spark.stage import SparkCluster, _why_lost, facts_of

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


def test_collected_rows_come_back_through_the_stage(spark, tmp_path):
    result = run(numbers(), spark, tmp_path)
    assert sorted(result.collected["out"].column("n").to_pylist()) == list(range(ROWS))


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


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            "Job aborted\n  Python worker exited unexpectedly (crashed)\n at x",
            "Python worker exited",
        ),
        ("x\nCaused by: java.io.IOException: disk full\n\tat y", "Caused by: java.io.IOException"),
        ("An error\nValueError: seven is odd\n", "ValueError: seven is odd"),
        ("only one line", "only one line"),
        ("", "RuntimeError"),
    ],
)
def test_the_line_of_sparks_report_that_says_most_is_the_reason(report, line):
    assert _why_lost(RuntimeError(report)).startswith(f"a worker died: {line}")
