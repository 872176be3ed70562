"""The late rows and early results of docs/pipelines.md are what the page says, whatever fails."""

import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
SCHEMA = pa.schema(
    [
        ("merchant", pa.string()),
        ("paid_at", pa.timestamp("us", tz="UTC")),
        ("amount_cents", pa.int64()),
    ]
)
MINUTE_US = 60_000_000


def payments() -> pa.Table:
    """One payment in each half minute; every fifth comes 20 minutes too late."""
    rows: list[Row] = []
    for number in range(150):
        minute = number / 2 - 20 * (number % 5 == 4)
        rows.append(
            {
                "merchant": f"m{number % 3}",
                "paid_at": round(minute * MINUTE_US),
                "amount_cents": number,
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def program(heading: str, **names) -> dict:
    """Run the example below this heading."""
    section = DOCUMENT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names |= {"agg": agg, "windows": windows}
    exec(compile(text, "docs/pipelines.md", "exec"), names)
    return names


def late_job(parallelism: int) -> Job:
    """Keep late payments: some of those that came too late, depending on the order of events."""
    del parallelism
    p = Pipeline("late")
    found = program("Late rows", payments=p.source("in", MemorySource([payments()])))
    job = with_ledgers(p, {"out": (found["totals"], []), "late": (found["late"], [])})
    rows = {row["amount_cents"]: row for row in payments().to_pylist()}

    def judge(_: list[Row], rows_late: int):
        kept = [row["amount_cents"] for row in job.ledgers["late"].rows()]
        if any(number % 5 != 4 for number in kept):
            yield f"{kept} are late, and some of these came in time"
        if len(kept) != len(set(kept)) or len(kept) != rows_late:
            yield f"{rows_late} rows are late, and {kept} are kept"
        expected = Counter(place(row) for number, row in rows.items() if number not in kept)
        totals = {
            (row["merchant"], minutes(row["window_start"])): row["payments"]
            for row in job.ledgers["out"].rows()
        }
        if totals != expected:
            yield f"of the payments that were not late there are {totals}, not {expected}"

    job.judge = judge
    return job


def place(row: Row) -> tuple[str, int]:
    """The merchant and window of a payment."""
    return row["merchant"], minutes(row["paid_at"]) // 5 * 5


def minutes(time: datetime) -> int:
    return int(time.timestamp() // 60)


def early_job(parallelism: int) -> Job:
    """Late rows by less than a day are in the final results."""
    del parallelism
    p = Pipeline("early")
    found = program("Early results", payments=p.source("in", MemorySource([payments()])))
    job = with_ledgers(p, {"out": (found["so_far"], [])})

    def judge(rows: list[Row], rows_late: int):
        final = {(row["merchant"], row["window_start"]): row for row in rows}
        if sum(row["payments"] for row in final.values()) != 150 or rows_late:
            yield f"not all rows are in {final}"
        if len(rows) < 3 * len(final):
            yield f"only {len(rows)} results came"

    job.judge = judge
    return job


def test_each_payment_is_in_a_total_or_kept_as_late() -> None:
    assert_right(late_job)


def test_totals_come_every_minute_and_end_with_all_payments() -> None:
    assert_right(early_job)


def assert_right(build) -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(4)]
    reports = [simulate_setting(setting, build) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
