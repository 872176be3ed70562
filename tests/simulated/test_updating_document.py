"""First, last and best rows and joins without bounds of docs/pipelines.md are what it says."""

import random
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import BuildJob, Job, Judge, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.updating_jobs import newest_are, weights_add_up_to

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
SECOND_US = 1_000_000
MERCHANTS = ("ann", "bob", "eve")
ROWS: list[Row] = [
    {
        "merchant": MERCHANTS[n % 3],
        "paid_at": n * 10 * SECOND_US,
        "amount_cents": -5 if n % 3 == 1 and n % 10 == 0 else n * 7 % 50,
    }
    for n in range(90)
]
"""Ten seconds apart, so all within an hour; only the second merchant has refunds."""


def program(heading: str, p: Pipeline) -> tuple[dict[str, Any], list[Row]]:
    """Run the program of a section; return its names, and the rows of its source."""
    section = DOCUMENT.partition(f"# {heading}\n")[2].partition("\n##")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    table = pa.Table.from_pylist(ROWS)
    times = table.column("paid_at").cast(pa.timestamp("us", tz="UTC"))
    table = table.set_column(1, "paid_at", times)
    names: dict = {"payments": p.source("in", MemorySource([table], batch_rows=7))}
    names |= {"pc": pc, "agg": agg, "windows": windows, "Stream": Stream}
    exec(compile(text, "docs/pipelines.md", "exec"), names)
    return names, table.to_pylist()


def rows_job(name: str) -> BuildJob:
    """Return the job of one of the streams of the first section."""

    def build(parallelism: int) -> Job:
        del parallelism
        p = Pipeline("rows")
        found, rows = program("First, last and best rows", p)
        of_key = {key: [row for row in rows if row["merchant"] == key] for key in MERCHANTS}
        first, last = ([of[at] for of in of_key.values()] for at in (0, -1))
        largest = [
            {**row, "place": place}
            for of in of_key.values()
            for place, row in enumerate(
                sorted(of, key=lambda row: (-row["amount_cents"], row["paid_at"]))[:10], 1
            )
        ]
        expected = {"merchants": first, "opening": first, "latest": last, "largest": largest}
        for other in expected.keys() - {name}:
            found[other].sink(f"{other}-out", CollectSink())
        job = with_ledgers(p, {"out": (found[name], expected[name])})
        judges: dict[str, Judge] = {
            "latest": newest_of(last),
            "largest": weights_add_up_to(largest),
        }
        job.judge = judges.get(name)
        return job

    return build


def newest_of(rows: list[Row]) -> Judge:
    judge = newest_are([{"key": row["merchant"], **row} for row in rows])
    return lambda found, late: judge([{"key": r["merchant"], **r} for r in found], late)


def join_job(parallelism: int) -> Job:
    del parallelism
    p = Pipeline("refunded")
    found, rows = program("Joins without bounds of time", p)
    refunds = [row for row in rows if row["amount_cents"] < 0]
    assert {row["merchant"] for row in refunds} == {"bob"}
    taken = ("paid_at", "amount_cents")
    expected: list[Row] = []
    for row in rows:
        met = [one for one in refunds if one["merchant"] == row["merchant"]]
        expected += [
            {**row, **{f"{name}_right": one[name] for name in taken}}
            for one in met or [dict.fromkeys(taken)]
        ]
    job = with_ledgers(p, {"out": (found["refunded"], expected)})
    job.judge = weights_add_up_to(expected)
    return job


def retracted_job(parallelism: int) -> Job:
    """Return the job of the sums over all merchants; the amounts go to another sink."""
    del parallelism
    p = Pipeline("taken-back")
    found, rows = program("Taking replaced rows back", p)
    last = Counter(rows[-n]["amount_cents"] for n in (1, 2, 3))
    amounts = [{"amount_cents": amount, "merchants": n} for amount, n in last.items()]
    sums: Counter[datetime] = Counter()
    for row in rows:
        at = row["paid_at"]
        sums[at.replace(minute=at.minute // 5 * 5, second=0)] += row["amount_cents"]
    totals = [{"window_start": start, "total": total} for start, total in sums.items()]
    outputs = {"out": (found["everywhere"], totals), "amounts": (found["per_amount"], amounts)}
    job = with_ledgers(p, outputs)
    of_totals, of_amounts = weights_add_up_to(totals), weights_add_up_to(amounts)
    job.judge = lambda out, late: (of_totals if "total" in out[0] else of_amounts)(out, late)
    return job


def busiest_job(parallelism: int) -> Job:
    """Return the job that ranks users by their orders, which come one after the other."""
    del parallelism
    p = Pipeline("busiest")
    drawn = random.Random(3)
    rows = [{"city": drawn.choice("ab"), "user": drawn.randrange(7)} for _ in range(90)]
    orders = p.source("in", MemorySource([pa.Table.from_pylist(rows)], batch_rows=5))
    names, _ = program("Best rows of rows that come and go", Pipeline("none"))
    counts = Counter((row["city"], row["user"]) for row in rows)
    expected: list[Row] = []
    for city in "ab":
        users = sorted((-n, user) for (where, user), n in counts.items() if where == city)
        expected += [
            {"city": city, "user": user, "orders": -n, "place": place}
            for place, (n, user) in enumerate(users[:3], 1)
        ]
    job = with_ledgers(p, {"out": (names["busiest"](orders), expected)})
    job.judge = weights_add_up_to(expected)
    return job


JOBS: dict[str, BuildJob] = {
    "refunded": join_job,
    "taken-back": retracted_job,
    "busiest": busiest_job,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["merchants", "opening", "latest", "largest", "refunded", "taken-back", "busiest"]
)
def test_results_are_those_that_the_page_says(name: str) -> None:
    build = JOBS.get(name) or rows_job(name)
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(2)]
    reports = [simulate_setting(setting, build) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
