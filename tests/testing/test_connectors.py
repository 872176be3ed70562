"""The checks of connectors pass where the contract is kept, and find each way to break it."""

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from laminar_core.connectors import DatagenSource, Sequence
from laminar_core.connectors.discovery import first_splits, fixed_list
from laminar_core.testing import MemorySource
from laminar_core.testing.connectors import check_source
from laminar_core.testing.memory_source import MemoryReader

SPLITS = [pa.table({"n": range(first, first + 9)}) for first in (0, 100, 200)]
SOURCE = MemorySource(SPLITS, gap_every=2)


def test_a_source_that_keeps_its_contract_passes() -> None:
    rows = check_source(SOURCE)
    assert sorted(row["n"] for row in rows) == sorted(n for t in SPLITS for n in t["n"].to_pylist())
    check_source(DatagenSource({"n": Sequence()}, rows=50))


class ForgetsHalfABatch(MemoryReader):
    def position(self) -> pa.Table:
        """Return a position that is one row too far: it is lost if the reader dies."""
        self._next_rows = self._next_rows + (self._next_rows % 9 != 0)
        return super().position()


class StandsBehindAnEarlierRow(MemoryReader):
    def position(self) -> pa.Table:
        """Return the beginning, so that rows come again."""
        before, self._next_rows = self._next_rows, self._next_rows * (self._next_rows == 9)
        position, self._next_rows = super().position(), before
        return position


class ReturnsTooMuch(MemoryReader):
    def poll(self, rows_max: int):
        """Return more rows than were asked for."""
        return super().poll(rows_max + 1)


@dataclass(frozen=True)
class Broken(MemorySource):
    reader: type = MemoryReader

    def open(self, splits: pa.Table) -> MemoryReader:
        """Return the reader that breaks the contract."""
        return self.reader(self, splits)


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        (ForgetsHalfABatch, r"seed \d+, split \d+: "),
        (StandsBehindAnEarlierRow, r"seed \d+, split \d+: "),
        (ReturnsTooMuch, "more rows than were asked for"),
    ],
)
def test_every_way_to_break_it_is_found(reader: type, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_source(Broken(SPLITS, reader=reader))


def test_a_table_without_the_columns_is_named() -> None:
    class Plain(MemorySource):
        def discovery(self):
            """Find a table that lacks a column."""
            return fixed_list(lambda: first_splits(SOURCE).drop_columns(["offset"]))

    with pytest.raises(AssertionError, match=r"lacks offset \(string\)"):
        check_source(Plain(SPLITS))


def test_crashes_are_the_same_in_every_run() -> None:
    assert check_source(SOURCE, seeds=[3]) == check_source(replace(SOURCE, batch_rows=1), seeds=[3])
