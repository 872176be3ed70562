"""The start of a pipeline: what cannot run it is refused before anything is written."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.driver.events import DataFlowing, ignore
from laminar_core.errors import ConfigurationError
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.pipeline.starting import _beside, _workers, started
from laminar_core.testing.memory_source import MemorySource


def test_a_session_that_cannot_run_jobs_is_refused_and_the_store_stays_untouched(
    tmp_path: Path,
) -> None:
    p = Pipeline("p")
    p.source("in", MemorySource([pa.table({"n": [1]})])).sink("out", CollectSink())
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        started(p, connect, CheckpointConfig(str(tmp_path / "store")), RunConfig(), ignore)
    assert list(tmp_path.iterdir()) == []


def test_a_function_that_cannot_be_sent_is_refused_and_the_store_stays_untouched(
    tmp_path: Path,
) -> None:
    p, lock = Pipeline("p"), threading.Lock()
    rows = p.source("in", MemorySource([pa.table({"n": [1]})]))
    rows.map(lambda batch: lock and batch, schema=rows.schema, name="m").sink("out", CollectSink())
    with pytest.raises(ConfigurationError, match="m cannot be sent to the workers: cannot pickle"):
        started(p, SimpleNamespace(), CheckpointConfig(str(tmp_path / "s")), RunConfig(), ignore)
    assert list(tmp_path.iterdir()) == []


def test_there_are_as_many_workers_as_spark_has_slots_unless_said_otherwise() -> None:
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=7))
    assert _workers(RunConfig(), spark) == 7
    assert _workers(RunConfig(workers=3), spark) == 3


def test_a_listener_has_every_event_also_beside_a_display_that_fails() -> None:
    def fail(_) -> None:
        raise OSError(28, "no space left")

    event, heard = DataFlowing(time_ms=1, generation=1), []
    _beside(heard.append, SimpleNamespace(on_event=fail))(event)
    assert heard == [event]
    shown = SimpleNamespace(on_event=(seen := []).append)
    _beside(None, shown)(event)
    _beside(heard.append, shown)(event)
    assert (seen, heard) == ([event, event], [event, event])
    _beside(None, None)(event)
