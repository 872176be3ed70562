"""The process function of docs/process.md does what the page says, whatever fails."""

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.store import read_operator, table_names
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job, Row, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

pytestmark = pytest.mark.large

DOCUMENT = (Path(__file__).parents[2] / "docs" / "process.md").read_text()
MINUTE_US = 60_000_000
LIMIT_US = 15 * MINUTE_US
ORDERS = 60
TIME = pa.timestamp("us", tz="UTC")


def rows() -> list[Row]:
    """An order each minute; paid at once, late, much later or never. Rows come in disorder."""
    random = Random(3)
    found: list[Row] = []
    for order in range(ORDERS):
        at = order * MINUTE_US
        found.append({"order": order, "what": "placed", "at": at})
        paid_after = random.choice([1, 14, 15, 16, 40, None])
        if paid_after is not None:
            found.append({"order": order, "what": "paid", "at": at + paid_after * MINUTE_US})
    return sorted(found, key=lambda row: row["at"] + random.randrange(4 * MINUTE_US))


def overdue_job(parallelism: int) -> Job:
    del parallelism
    program, use = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)[:2]
    schema = pa.schema([("order", pa.int64()), ("what", pa.string()), ("at", TIME)])
    table = pa.Table.from_pylist(rows(), schema=schema)
    p = Pipeline("overdue")
    source = p.source("in", MemorySource([table], batch_rows=5), rows_per_second=400)
    names: dict = {"rows": source}
    exec(compile(program + use, "docs/process.md", "exec"), names)
    paid = {row["order"]: row["at"] for row in rows() if row["what"] == "paid"}
    due = {order: order * MINUTE_US + LIMIT_US for order in range(ORDERS)}
    late = [order for order in due if paid.get(order, due[order]) >= due[order]]
    times = pa.array([due[order] for order in late]).cast(TIME).to_pylist()
    expected = [{"order": o, "due": at} for o, at in zip(late, times, strict=True)]
    assert 0 < len(expected) < ORDERS
    return with_ledgers(p, {"out": (names["late"], expected)})


def test_orders_that_were_not_paid_in_time_are_found_exactly_once() -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(3)]
    reports = [simulate_setting(setting, overdue_job) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports)


def test_its_state_is_read_as_tables() -> None:
    simulation = Simulation(overdue_job(2).plan, parallelism=2)
    read: list[tuple[tuple[str, ...], int]] = []

    def look() -> None:
        files = simulation.store.parts
        manifest = simulation.store.manifests.read(simulation.store.manifests.ids()[-1])
        placed = read_operator(files, manifest, "overdue", "placed")
        timers = read_operator(files, manifest, "overdue", "event-timers")
        if placed is not None and timers is not None:
            assert placed.column("placed").null_count == 0
            assert placed.num_rows == timers.num_rows > 0, "each open order has its timer"
            read.append((table_names("overdue", manifest), placed.num_rows))

    for number in range(1, 4):
        simulation.when(CheckpointCompleted, look, number)
    simulation.run()
    assert read
    assert read[-1][0] == ("event-timers", "paid", "placed")


USES = [
    ("ann", "phone", 0), ("ann", "laptop", 1), ("bob", "phone", 2), ("ann", "phone", 3),
    ("ann", "tablet", 30), ("bob", "laptop", 40), ("bob", "tablet", 41), ("bob", "phone", 42),
]  # fmt: skip
"""Account, device, and hour."""


def test_devices_that_are_new_are_found_and_three_within_a_day_are_an_alarm() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    program = next(n for n, block in enumerate(blocks) if "class Devices" in block)
    account, device, hours = (list(column) for column in zip(*USES, strict=True))
    at = pa.array([60 * MINUTE_US * hour for hour in hours], pa.int64()).cast(TIME)
    cents = pa.array(range(len(USES)), pa.int64())
    table = pa.table({"account": account, "device": device, "cents": cents, "at": at})
    p = Pipeline("devices")
    names: dict = {"payments": p.source("in", MemorySource([table], batch_rows=1))}
    for code in (blocks[0], *blocks[program : program + 2]):
        exec(compile(code, "docs/process.md", "exec"), names)
    new = [("ann", "phone"), ("ann", "laptop"), ("bob", "phone"), ("ann", "tablet")]
    new += [("bob", "laptop"), ("bob", "tablet")]
    expected = [{"account": account, "device": device} for account, device in new]
    recent = [n for n, (account, _, hour) in enumerate(USES) if account == "bob" and hour > 9]
    alarms = [{"account": "bob", "payments": [{"device": USES[n][1], "cents": n} for n in recent]}]
    outputs = {"new": (names["first_uses"], expected), "alarms": (names["alarms"], alarms)}
    job = with_ledgers(p, outputs)
    Simulation(job.plan, parallelism=2).run()
    job.check()


def settle_job(parallelism: int) -> Job:
    del parallelism
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    at = next(n for n, block in enumerate(blocks) if "class Settle" in block)
    assert len((blocks[at] + blocks[at + 1]).splitlines()) < 60
    placed = [row for row in rows() if row["what"] == "placed"]
    paid = [row for row in rows() if row["what"] == "paid"]
    p = Pipeline("settle")
    names: dict = {
        "orders": _read(p, "orders", [{**row, "shop": f"s{row['order'] % 4}"} for row in placed]),
        "payments": _read(p, "payments", [{**r, "number": r["order"], "cents": 7} for r in paid]),
    }
    for block in blocks[at : at + 2]:
        exec(compile(block, "docs/process.md", "exec"), names)
    paid_at = {row["order"]: row["at"] for row in paid}
    in_time = [o for o in range(ORDERS) if paid_at.get(o, 2**62) < o * MINUTE_US + LIMIT_US]
    settled = [{"order": o, "shop": f"s{o % 4}", "cents": 7} for o in in_time]
    unpaid = [{"order": order} for order in range(ORDERS) if order not in in_time]
    assert settled
    assert unpaid
    outputs = {"out": (names["settled"], settled), "unpaid": (names["unpaid"], unpaid)}
    return with_ledgers(p, outputs)


def _read(p: Pipeline, name: str, found: list[Row]) -> Stream:
    types = {"order": pa.int64(), "at": TIME, "shop": pa.string(), "number": pa.int64()}
    schema = pa.schema([(c, types.get(c, pa.int64())) for c in found[0] if c != "what"])
    table = pa.Table.from_pylist(found, schema=schema)
    return p.source(name, MemorySource([table], batch_rows=5), rows_per_second=300)


def test_orders_and_payments_of_two_streams_meet_whatever_fails() -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in range(3)]
    reports = [simulate_setting(setting, settle_job) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports)


def test_pieces_of_the_page_are_programs() -> None:
    for piece in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL):
        compile(piece, "docs/process.md", "exec")
