"""The operator of docs/rescaling.md does what is said there while workers become more or fewer."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, payments, rows_of, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "rescaling.md").read_text()


def audit_job(parallelism: int) -> Job:
    """All rows are counted, whoever counts them."""
    del parallelism
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    names: dict = {}
    exec(compile(program, "docs/rescaling.md", "exec"), names)
    p, tables = Pipeline("audit"), payments()
    told = p.source("in", MemorySource(tables)).rebalance().then(names["Audit"]("audit"))
    job = with_ledgers(p, {"out": (told, [{"rows": 120}])})

    def judge(rows, rows_late):
        if (found := sum(row["rows"] for row in rows)) != len(rows_of(tables)) or rows_late:
            yield f"{found} rows were counted"

    job.judge = judge
    assert told.schema == pa.schema([("rows", pa.int64())])
    return job


def test_an_operator_of_ones_own_is_rescaled_as_it_says() -> None:
    disasters = ("rescale", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(16)]
    reports = [simulate_setting(setting, audit_job) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports)
