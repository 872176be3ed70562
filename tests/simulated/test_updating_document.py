"""First, last and best rows and joins without bounds of docs/pipelines.md are what it says."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import BuildJob, Job, Judge, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.updating_jobs import newest_are, weights_add_up_to

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


def program(heading: str, p: Pipeline) -> tuple[dict[str, Stream], list[Row]]:
    """Run the program of a section; return its names, and the rows of its source."""
    section = DOCUMENT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    table = pa.Table.from_pylist(ROWS)
    times = table.column("paid_at").cast(pa.timestamp("us", tz="UTC"))
    table = table.set_column(1, "paid_at", times)
    names: dict = {"payments": p.source("in", MemorySource([table], batch_rows=7)), "pc": pc}
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["merchants", "opening", "latest", "largest", "refunded"])
def test_results_are_those_that_the_page_says(name: str) -> None:
    build = join_job if name == "refunded" else rows_job(name)
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(2)]
    reports = [simulate_setting(setting, build) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
