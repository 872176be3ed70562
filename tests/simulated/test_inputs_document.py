"""The operator with two inputs of docs/pipelines.md does what the page says, whatever fails."""

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
ORDERS = 90


def settle_job(parallelism: int) -> Job:
    """Every order is paid, but in another order."""
    del parallelism
    section = DOCUMENT.partition("## Several inputs\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict = {}
    exec(compile(program, "docs/pipelines.md", "exec"), names)
    numbers = list(range(ORDERS))
    orders = pa.table({"order": numbers, "shop": [f"s{n % 4}" for n in numbers]})
    Random(1).shuffle(numbers)
    payments = pa.table({"order": numbers, "cents": [100 * n for n in numbers]})
    p = Pipeline("settle")
    left = p.source("orders", MemorySource([orders.slice(0, 50), orders.slice(50)]))
    right = p.source("payments", MemorySource([payments], batch_rows=7, gap_every=3))
    operator = names["Settle"]("settle")
    settled = left.key_by("order").connect(right.key_by("order"), operator=operator)
    expected = [{"order": n, "shop": f"s{n % 4}", "cents": 100 * n} for n in range(ORDERS)]
    return with_ledgers(p, {"out": (settled, expected)})


def test_an_operator_with_two_inputs_is_exact_as_it_says() -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(8)]
    reports = [simulate_setting(setting, settle_job) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports) / 2
