"""Simulated jobs, their input rows, and their expected output computed in plain Python."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.plan.plan import Plan
from laminar_core.testing.ledger import Ledger, LedgerSink

SECOND_US = 1_000_000
WINDOW_US = 10 * SECOND_US
JITTER_US = 3 * SECOND_US
DELAY = "6 seconds"

VALUES, HALF, KEPT_FROM, WORK = 100, 50, 30, 25
"""Number of values, from 0; thresholds at which jobs divide them; decrease per round."""

Row = dict[str, Any]


def _free(duration_ms: float) -> None:
    del duration_ms


@dataclass(slots=True)
class Burden:
    """A map that changes nothing and takes ``row_ms`` of simulated time a row."""

    row_ms: float = 0.0
    spend: Callable[[float], None] = _free
    """Makes simulated time pass: a world's ``spend``."""

    def carry(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch after a while."""
        self.spend(self.row_ms * batch.num_rows)
        return batch


Judge = Callable[[list[Row], int], Iterator[str]]
"""Finds errors in output with several correct results; also gets the job's count of late rows."""


@dataclass
class Job:
    """A plan, the ledgers of its output, and the expected rows."""

    plan: Plan
    expected: dict[str, list[Row]]
    ledgers: dict[str, Ledger] = field(default_factory=dict[str, Ledger])
    burden: Burden = field(default_factory=Burden)
    """Its slow operator, if there is one."""
    judge: Judge | None = None
    """Decides in place of ``expected``."""
    rescales: bool = True
    """The number of workers may change, and the expected output does not depend on it."""
    pipeline: Pipeline | None = None
    """The pipeline of the plan, for callers that add operators."""

    def problems(self, rows_late: int = 0) -> Iterator[str]:
        """Yield differences between visible and expected output: lost or duplicated rows."""
        for name, ledger in self.ledgers.items():
            if self.judge is not None:
                yield from (
                    f"{name}: {problem}" for problem in self.judge(ledger.rows(), rows_late)
                )
            else:
                found, expected = normal(ledger.rows()), normal(self.expected[name])
                if found != expected:
                    yield f"{name}: {_difference(found, expected)}"
            listed = [part for parts in ledger.commits.values() for part in parts]
            if sorted(listed) != sorted(ledger.visible):
                yield f"{name}: visible parts are not those that were committed"

    def check(self, rows_late: int = 0) -> None:
        """Assert that the output equals the oracle's."""
        assert list(self.problems(rows_late)) == []

    def load(self, ledgers: Mapping[str, Ledger]) -> None:
        """Continue with copies of the output of an equal job."""
        for name, ledger in self.ledgers.items():
            ledger.load(ledgers[name])


def _difference(found: list[str], expected: list[str]) -> str:
    lost = list(expected)
    extra: list[str] = []
    for row in found:
        if row in lost:
            lost.remove(row)
        else:
            extra.append(row)
    examples = "".join(
        f"; {what} {rows[0]}"
        for what, rows in (("e.g. lost", lost), ("e.g. too much", extra))
        if rows
    )
    return f"{len(lost)} of {len(expected)} rows lost, {len(extra)} too many{examples}"


@cache
def payments(splits: int = 3, rows: int = 40, seed: int = 1) -> list[pa.Table]:
    """Return payments: event time grows by a second a row, disordered within ``DELAY``.

    Unique ``id``.
    """
    random = Random(seed)  # noqa: S311 - a simulation, not a secret
    tables: list[pa.Table] = []
    for split in range(splits):
        ids = [split * rows + n for n in range(rows)]
        times = [i * SECOND_US + random.randrange(2 * JITTER_US) - JITTER_US for i in ids]
        tables.append(
            pa.table(
                {
                    "id": [seed * 10_000 + i for i in ids],
                    "key": [f"k{random.randrange(7)}" for _ in ids],
                    "value": [random.randrange(VALUES) for _ in ids],
                    "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
            )
        )
    return tables


def rows_of(tables: Sequence[pa.Table]) -> list[Row]:
    """Return the rows of all tables as dictionaries."""
    return [row for table in tables for row in table.to_pylist()]


def totals(rows: Sequence[Row]) -> list[Row]:
    """Count and sum per key and window, one row after the other."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        time_us = int(row["ts"].timestamp() * SECOND_US)
        start = time_us - time_us % WINDOW_US
        total = found.setdefault(
            (row["key"], start), {"key": row["key"], "start": start, "count": 0, "total": 0}
        )
        total["count"] += 1
        total["total"] += row["value"]
    return list(found.values())


def doubled_windows(rows: Sequence[Row]) -> list[Row]:
    """Return the results of ``totals`` for windows of double size."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        start = row["start"] - row["start"] % (2 * WINDOW_US)
        total = found.setdefault(
            (row["key"], start), {**row, "start": start, "count": 0, "total": 0}
        )
        total["count"] += row["count"]
        total["total"] += row["total"]
    return list(found.values())


def plain(rows: Sequence[Row]) -> list[Row]:
    """Return window rows in the form of ``totals``; other rows unchanged."""
    return [
        {
            "key": row["key"],
            "start": int(row["window_start"].timestamp() * SECOND_US),
            "count": row["count"],
            "total": row["total"],
        }
        if "window_start" in row
        else row
        for row in rows
    ]


def normal(rows: Sequence[Row]) -> list[str]:
    """Return a form in which equal multisets of rows are equal."""
    return sorted(repr(sorted(row.items())) for row in plain(rows))


def windowed(stream: Stream, name: str = "totals", window: str = "10 seconds") -> Stream:
    """Count and sum per key and window."""
    return (
        stream.key_by("key")
        .window(windows.tumbling(window), time="ts")
        .aggregate(name, agg.count(), agg.sum("value", name="total"))
    )


def with_ledgers(
    pipeline: Pipeline, outputs: dict[str, tuple[Stream, list[Row]]], burden: Burden | None = None
) -> Job:
    """End each stream in a ledger; ``outputs`` maps sink names to streams and expected rows."""
    ledgers = {name: Ledger() for name in outputs}
    for name, (stream, _) in outputs.items():
        stream.sink(name, LedgerSink(ledgers[name], name))
    expected = {name: rows for name, (_, rows) in outputs.items()}
    return Job(pipeline.plan(), expected, ledgers, burden or Burden(), pipeline=pipeline)


BuildJob = Callable[[int], Job]
