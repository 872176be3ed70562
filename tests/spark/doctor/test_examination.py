"""The examination of a real Spark, and of one that has too little."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.pipeline import Pipeline
from laminar_core.spark.doctor.examination import Examination, Paths
from laminar_core.spark.doctor.findings import CHECKS, Plan


def pipeline(folder: Path) -> Pipeline:
    (folder / "in").mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), folder / "in" / "rows.parquet")
    (folder / "out").mkdir()
    p = Pipeline("examined")
    p.source("in", ParquetSource(folder / "in")).sink("out", ParquetSink(folder / "out"))
    return p


@pytest.mark.spark
def test_a_spark_that_is_well_passes_every_check(spark, tmp_path: Path):
    paths = Paths.of(pipeline(tmp_path).plan())
    assert paths == Paths((str(tmp_path / "in"),), (str(tmp_path / "out"),))
    store = tmp_path / "store"
    findings = Examination(Plan(workers=2), str(store), paths).run(spark, SystemClock())
    assert [each for each in findings if each.result != "ok"] == []
    assert {each.check for each in findings} == {"Spark", "task slots", "tasks", *CHECKS}
    assert [file for file in store.rglob("*") if file.is_file()] == []
    assert list((tmp_path / "out").iterdir()) == []


class Conf:
    """Settings of a cluster that never gets executors."""

    def __init__(self, **settings: str) -> None:
        self._settings = {"spark.master": "spark://m:7077", **settings}

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._settings.get(name, default)


def test_a_cluster_without_slots_is_waited_for_and_then_named():
    clock = ManualClock()
    began_ms = clock.monotonic_ms()
    session = SimpleNamespace(conf=Conf())
    findings = Examination(Plan(workers=2)).run(session, clock)
    assert 30_000 <= clock.monotonic_ms() - began_ms < 31_000
    assert [(each.check, each.result) for each in findings] == [
        ("Spark", "ok"),
        ("encryption", "warning"),
        ("task slots", "failed"),
    ]
    assert "spark.driver.host" in findings[-1].advice


def test_a_spark_that_refuses_barrier_stages_is_not_asked_for_more():
    session = SimpleNamespace(conf=Conf(**{"spark.dynamicAllocation.enabled": "true"}))
    (finding,) = Examination(Plan(workers=2)).run(session, ManualClock())
    assert (finding.check, finding.result) == ("Spark", "failed")
    assert "spark.dynamicAllocation.enabled=false" in finding.detail
