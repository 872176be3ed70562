"""The enrichment of docs/pipelines.md does what the page says, whatever fails."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
ROWS = 200
UNKNOWN = "0150"
"""An account that the service does not answer for in time."""


class Directory:
    """Knows the bank of each account."""

    async def look_up(self, ibans: list[str]) -> list[str]:
        await asyncio.sleep(60 if UNKNOWN in ibans else 0.005)
        return [f"bank {iban[-1]}" for iban in ibans]


def banks_job(parallelism: int) -> Job:
    del parallelism
    section = DOCUMENT.partition("## Calls of other services")[2]
    (program, *_) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    table = pa.table({"iban": [f"{n:04}" for n in range(ROWS)]})
    p = Pipeline("banks")
    payments = p.source("in", MemorySource([table], batch_rows=1), rows_per_second=400)
    names: dict = {"pa": pa, "payments": payments, "directory": Directory()}
    exec(compile(program, "docs/pipelines.md", "exec"), names)
    rows = names["with_banks"].map(checked, name="checked")
    aside = names["unknown"].select("iban").map(checked, name="checked-aside")
    together = rows.select("iban").union(aside)
    return with_ledgers(p, {"out": (together, table.to_pylist())})


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    for row in batch.to_pylist():
        assert row.get("bank", f"bank {row['iban'][-1]}") == f"bank {row['iban'][-1]}"
    return batch


def test_each_payment_gets_its_bank_or_goes_aside_exactly_once() -> None:
    disasters = ("rescale", "worker-crash")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(2)]
    reports = [simulate_setting(setting, banks_job) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
