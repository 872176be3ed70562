"""The joins of docs/pipelines.md do what the page says, whatever fails."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import BuildJob, Job, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
SECOND_US = 1_000_000
TIME = pa.timestamp("us", tz="UTC")


def program() -> dict:
    section = DOCUMENT.partition("## Joins\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict = {}
    exec(compile(text, "docs/pipelines.md", "exec"), names)
    return names


def times(seconds: list[int]) -> pa.Array:
    return pa.array([second * SECOND_US for second in seconds], TIME)


def new_sellers_job(parallelism: int) -> Job:
    """Each person opens an auction at once, and one 11 seconds later; every third opens none."""
    del parallelism
    persons, sellers = list(range(60)), [n for n in range(60) if n % 3]
    arrived = pa.table({"id": persons, "arrived_at": times(persons)})
    soon = {"seller": sellers, "opened_at": times(sellers)}
    later = {"seller": sellers, "opened_at": times([n + 11 for n in sellers])}
    p = Pipeline("new-sellers")
    left = p.source("persons", MemorySource([arrived], batch_rows=7, gap_every=3))
    right = p.source("auctions", MemorySource([pa.table(soon), pa.table(later)]))
    pairs = program()["new_sellers"](left, right)
    expected: list[Row] = [
        {
            "id": row["id"],
            "arrived_at": row["arrived_at"],
            "seller": row["id"] if row["id"] in sellers else None,
            "opened_at": row["arrived_at"] if row["id"] in sellers else None,
        }
        for row in arrived.to_pylist()
    ]
    return with_ledgers(p, {"out": (pairs, expected)})


def priced_job(parallelism: int) -> Job:
    """A quote every half hour, and trades a second after it, with it, and two hours later."""
    del parallelism
    moments = [n * 1_800 for n in range(30)]
    quotes = pa.table({"symbol": ["S"] * 30, "at": times(moments), "price": list(range(30))})
    asked = sorted([*moments, *(n + 1 for n in moments), 29 * 1_800 + 7_200])
    trades = pa.table({"symbol": ["S"] * len(asked), "at": times(asked), "n": asked})
    p = Pipeline("priced")
    left = p.source("trades", MemorySource([trades], batch_rows=5))
    right = p.source("quotes", MemorySource([quotes], gap_every=2))
    rows = program()["priced"](left, right)
    given = {row["price"] * 1_800: row for row in quotes.to_pylist()}
    expected = []
    for row in trades.to_pylist():
        quote = given.get(row["n"]) or given.get(row["n"] - 1) or {"at": None, "price": None}
        expected.append({**row, "at_right": quote["at"], "price": quote["price"]})
    return with_ledgers(p, {"out": (rows, expected)})


def bids_in_time_job(parallelism: int) -> Job:
    """An auction every second, open for 0 to 9 seconds, and a bid on it in each of ten seconds."""
    del parallelism
    numbers = list(range(40))
    closes = times([n + n % 10 for n in numbers])
    auctions = pa.table({"auction": numbers, "opened_at": times(numbers), "closes_at": closes})
    bids = [(auction, auction + later) for later in range(10) for auction in numbers]
    bids.sort(key=lambda bid: bid[1])
    bid_at = times([time for _, time in bids])
    p = Pipeline("bids-in-time")
    left = p.source("auctions", MemorySource([auctions], batch_rows=7))
    columns = {"auction": [auction for auction, _ in bids], "bid_at": bid_at}
    right = p.source("bids", MemorySource([pa.table(columns)], gap_every=3))
    pairs = program()["bids_in_time"](left, right)
    opened = {row["auction"]: row for row in auctions.to_pylist()}
    expected: list[Row] = [
        {**opened[bid["auction"]], "bid_at": bid["bid_at"]}
        for bid in pa.table(columns).to_pylist()
        if bid["bid_at"] <= opened[bid["auction"]]["closes_at"]
    ]
    return with_ledgers(p, {"out": (pairs, expected)})


def without_click_job(parallelism: int) -> Job:
    """A view every second, and every other minute a click in its last second."""
    del parallelism
    seconds = list(range(300))
    views = pa.table({"user": ["U"] * 300, "at": times(seconds), "n": seconds})
    clicks = pa.table({"user": ["U"] * 3, "at": times([59, 179, 299])})
    p = Pipeline("without-click")
    left = p.source("views", MemorySource([views], batch_rows=9))
    right = p.source("clicks", MemorySource([clicks], gap_every=2))
    rows = program()["without_click"](left, right).select("user", "at", "n")
    expected = [row for row in views.to_pylist() if row["n"] // 60 % 2]
    return with_ledgers(p, {"out": (rows, expected)})


def quoted_next_job(parallelism: int) -> Job:
    """A quote every half hour; trades with it, a minute and 61 seconds before it, and after all."""
    del parallelism
    moments = [n * 1_800 for n in range(1, 20)]
    quotes = pa.table({"symbol": ["S"] * 19, "at": times(moments), "price": moments})
    asked = sorted([*moments, *(n - 60 for n in moments), *(n - 61 for n in moments), 40_000])
    trades = pa.table({"symbol": ["S"] * len(asked), "at": times(asked), "n": asked})
    p = Pipeline("quoted-next")
    left = p.source("trades", MemorySource([trades], batch_rows=5))
    right = p.source("quotes", MemorySource([quotes], gap_every=2))
    rows = program()["quoted_next"](left, right)
    given = {row["price"]: row for row in quotes.to_pylist()}
    expected = []
    for row in trades.to_pylist():
        quote = given.get(row["n"]) or given.get(row["n"] + 60) or {"at": None, "price": None}
        expected.append({**row, "at_right": quote["at"], "price": quote["price"]})
    return with_ledgers(p, {"out": (rows, expected)})


def balance_job(parallelism: int) -> Job:
    """A payment every minute to one of three merchants; the second returns some, the fourth only.

    The judge compares the rows themselves, because the ledger knows windows of one form.
    """
    del parallelism
    minutes = list(range(31))
    merchants = ["ann", "bob", "eve"]
    paid = [(merchants[n % 3], n * 60, n) for n in minutes]
    returned = [("bob", n * 60 + 7, n) for n in minutes if n % 4 == 0]
    returned += [("zoe", n * 60 + 9, n) for n in minutes if n % 10 == 0]
    returned.sort(key=lambda row: row[1])
    p = Pipeline("balance")
    streams = []
    sides = ((paid, "paid_at", 5), (returned, "returned_at", 3))
    for rows, time, batch_rows in sides:
        names, seconds, cents = zip(*rows, strict=True)
        table = pa.table({"merchant": names, time: times(list(seconds)), "cents": cents})
        streams.append(p.source(time, MemorySource([table], batch_rows=batch_rows, gap_every=3)))
    found: dict[tuple[str, int], list[int | None]] = {}
    for side, (rows, _, _) in enumerate(sides):
        for merchant, second, cents in rows:
            sums = found.setdefault((merchant, second // 300), [None, None])
            sums[side] = (sums[side] or 0) + cents
    wanted = sorted((m, n * 300, *sums) for (m, n), sums in found.items())
    assert {tuple(one is None for one in row[2:]) for row in wanted} == {
        (False, False),
        (False, True),
        (True, False),
    }
    rows = program()["paid_and_returned"](*streams)
    job = with_ledgers(p, {"out": (rows, [])})

    def judge(_: list[Row], rows_late: int) -> Iterator[str]:
        come = sorted(
            (
                row["merchant"],
                int(row["window_start"].timestamp()),
                row["paid_cents"],
                row["returned_cents"],
            )
            for row in job.ledgers["out"].rows()
        )
        if come != wanted or rows_late:
            yield f"{rows_late} rows are late, and there is {come}, not {wanted}"

    job.judge = judge
    return job


JOBS = [
    new_sellers_job,
    priced_job,
    bids_in_time_job,
    without_click_job,
    quoted_next_job,
    balance_job,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("build", JOBS)
def test_joins_are_exact_as_the_page_says(build: BuildJob) -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(3)]
    reports = [simulate_setting(setting, build) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports) / 2
