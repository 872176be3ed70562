"""The lookups of docs/pipelines.md do what the page says, whatever fails."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import BuildJob, Job, Row, normal, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
CODES = ["EUR", "USD", "XAU"]
PAYMENTS = pa.table({"id": range(60), "currency": [CODES[n % 3] for n in range(60)]})
MERCHANTS = pa.table(
    {
        "merchant": ["a", "b"] * 30,
        "owner": [f"o{n}" for n in range(60)],
        "is_closed": [n == 21 for n in range(60)],
    }
)


def program() -> dict:
    section = DOCUMENT.partition("## Lookups\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict = {}
    exec(compile(text, "docs/pipelines.md", "exec"), names)
    return names


def in_euros_job(folder: Path) -> BuildJob:
    rates = pa.table({"code": ["USD", "EUR"], "rate": [0.9, 1.0], "asked_at": ["now", "then"]})
    pq.write_table(rates, folder / "rates.parquet")

    def build(parallelism: int) -> Job:
        del parallelism
        p = Pipeline("in-euros")
        payments = p.source("payments", MemorySource([PAYMENTS], batch_rows=7, gap_every=3))
        found = program()["in_euros"](payments, str(folder))
        known = {"EUR": 1.0, "USD": 0.9}
        expected = [
            {**row, "rate": known[row["currency"]]}
            for row in PAYMENTS.to_pylist()
            if row["currency"] in known
        ]
        return with_ledgers(p, {"out": (found, expected)})

    return build


def with_owner_job(parallelism: int) -> Job:
    """Owners change all the time, and merchant b is closed in between."""
    del parallelism
    asked = pa.table({"id": range(80), "merchant": ["a", "b", "c", None] * 20})
    owners: dict[str, list[str | None]] = {"a": [None], "b": [None]}
    for row in MERCHANTS.to_pylist():
        owners[row["merchant"]].append(None if row["is_closed"] else row["owner"])

    def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
        del rows_late
        given = [{name: row[name] for name in ("id", "merchant")} for row in rows]
        if normal(given) != normal(asked.to_pylist()):
            yield "not each row once"
        reached = {"a": 0, "b": 0}
        for row in rows:
            versions = owners.get(row["merchant"], [None])
            start = reached.get(row["merchant"], 0)
            if row["owner"] not in versions[start:]:
                yield f"{row} after version {start}"
            elif row["merchant"] in reached:
                reached[row["merchant"]] = versions.index(row["owner"], start)

    p = Pipeline("with-owner")
    payments = p.source("payments", MemorySource([asked], batch_rows=3, gap_every=2))
    merchants = p.source("merchants", MemorySource([MERCHANTS], batch_rows=3, gap_every=4))
    job = with_ledgers(p, {"out": (program()["with_owner"](payments, merchants), [])})
    job.judge = judge
    return job


@pytest.mark.parametrize("name", ["in-euros", "with-owner"])
def test_lookups_do_what_the_page_says(name: str, tmp_path: Path) -> None:
    build = in_euros_job(tmp_path) if name == "in-euros" else with_owner_job
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(3)]
    reports = [simulate_setting(setting, build) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports) / 2
