"""The sessions of docs/pipelines.md are what the page says, whatever fails."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
MINUTE_US = 60_000_000
VISITS = {"ann": [(0, 3), (40, 4)], "bob": [(5, 5)]}
"""By user: when a visit began, in minutes, and its number of clicks, ten minutes apart."""


def visits_job(parallelism: int) -> Job:
    """Clicks exactly one gap apart belong together."""
    del parallelism
    section = DOCUMENT.partition("## Sessions\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    clicks: list[Row] = []
    expected: list[Row] = []
    for user, visits in VISITS.items():
        for start, count in visits:
            clicks += [
                {"user": user, "clicked_at": (start + 10 * n) * MINUTE_US, "page": f"/{start}-{n}"}
                for n in range(count)
            ]
            expected.append({"user": user, "clicks": count, "entry": f"/{start}-0"})
    clicks.sort(key=lambda click: click["clicked_at"])
    table = pa.Table.from_pylist(clicks)
    times = table.column("clicked_at").cast(pa.timestamp("us", tz="UTC"))
    p = Pipeline("visits")
    source = MemorySource([table.set_column(1, "clicked_at", times)], batch_rows=2, gap_every=2)
    names: dict = {"clicks": p.source("clicks", source), "agg": agg}
    exec(compile(program, "docs/pipelines.md", "exec"), names)
    found = names["visits"].select("user", "clicks", "entry")
    return with_ledgers(p, {"out": (found, expected)})


def test_visits_end_where_the_page_says() -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(6)]
    reports = [simulate_setting(setting, visits_job) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
