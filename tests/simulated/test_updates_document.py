"""The totals of totals of docs/pipelines.md are what the page says, whatever fails."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.operators import agg
from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
ORDERS = [
    {"user": f"u{n % 11}", "amount": amount} for n, amount in enumerate([3, 5, 8, 5, 1, 2] * 15)
]


def program() -> dict:
    section = DOCUMENT.partition("## Streams that update\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict = {"agg": agg, "Stream": Stream}
    exec(compile(text, "docs/pipelines.md", "exec"), names)
    return names


def expected() -> Counter[tuple[int, int]]:
    totals: Counter[str] = Counter()
    for order in ORDERS:
        totals[order["user"]] += order["amount"]
    return Counter(Counter(totals.values()).items())


def judge(rows: list[Row], rows_late: int) -> Iterator[str]:
    left: Counter[tuple[int, int]] = Counter()
    for row in rows:
        left[row["total"], row["users"]] += row[WEIGHT]
    if {line: weight for line, weight in left.items() if weight} != expected() or rows_late:
        yield f"{left} is not {expected()}"


def users_job(parallelism: int) -> Job:
    del parallelism
    p = Pipeline("users-per-total")
    orders = p.source("in", MemorySource([pa.Table.from_pylist(ORDERS)], batch_rows=4))
    job = with_ledgers(p, {"out": (program()["users_per_total"](orders), [])})
    job.judge = judge
    return job


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_users_are_counted_by_their_total(seed: int) -> None:
    report = simulate_setting(draw(seed, {"users": users_job}), users_job)
    assert report.passed, report.violations
