"""Tables in memory as a source: every row once, from any position on."""

import pyarrow as pa
import pytest

from laminar_core.connectors.discovery import first_splits
from laminar_core.errors import IncompatibleStateError
from laminar_core.state.splits import rows_read, rows_total
from laminar_core.testing.memory_source import MemorySource
from tests.connectors.gap_checks import refuse_gaps

ALL = 1_000_000
TABLES = [pa.table({"n": [0, 1, 2, 3, 4]}), pa.table({"n": [10, 11]})]


def drain(reader, polls: int = 100) -> list[int | None]:
    """Values in reading order; None for a poll that found nothing."""
    found: list[int | None] = []
    for _ in range(polls):
        if reader.finished:
            break
        batch = reader.poll(ALL)
        found.extend([None] if batch is None else batch.rows.column("n").to_pylist())
    return found


def test_every_split_is_read_in_order_in_batches():
    source = MemorySource(TABLES, batch_rows=2)
    reader = source.open(first_splits(source))
    assert reader.poll(ALL).rows.column("n").to_pylist() == [0, 1]
    assert drain(reader) == [2, 3, 4, 10, 11]
    assert reader.finished
    assert reader.poll(ALL) is None


@pytest.mark.parametrize("batches", range(5))
def test_reading_goes_on_at_any_position(batches):
    source = MemorySource(TABLES, batch_rows=2)
    reader = source.open(first_splits(source))
    before = [reader.poll(ALL).rows.column("n").to_pylist() for _ in range(batches)]
    again = source.open(reader.position())
    assert [n for rows in before for n in rows] + drain(again) == [0, 1, 2, 3, 4, 10, 11]


def test_a_position_counts_rows():
    source = MemorySource(TABLES, batch_rows=3)
    reader = source.open(first_splits(source))
    reader.poll(ALL)
    assert (rows_read(reader.position()), rows_total(reader.position())) == (3, 7)


def test_a_reader_reads_its_own_splits_only():
    source = MemorySource(TABLES)
    assert drain(source.open(first_splits(source).slice(1, 1))) == [10, 11]
    nothing = source.open(first_splits(source).slice(0, 0))
    assert nothing.finished
    assert nothing.poll(ALL) is None


def test_gaps_come_where_they_were_asked_for():
    source = MemorySource(TABLES[:1], batch_rows=2, gap_every=2, gap_polls=2)
    assert drain(source.open(first_splits(source))) == [0, 1, 2, 3, None, None, 4]


def test_without_a_bound_it_never_ends():
    source = MemorySource(TABLES, batch_rows=5, bounded=False)
    reader = source.open(first_splits(source))
    assert drain(reader, polls=4) == [0, 1, 2, 3, 4, 10, 11, None, None]
    assert rows_total(first_splits(source)) is None


def test_rows_that_are_gone_are_noticed_before_a_restore():
    source = MemorySource(TABLES)
    reader = source.open(first_splits(source))
    drain(reader)
    refuse_gaps(MemorySource(TABLES), reader.position())
    shorter = MemorySource([TABLES[0], TABLES[1].slice(1)])
    with pytest.raises(
        IncompatibleStateError, match=r"1 continues at 2, and there is 0 to 1 \(truncated\)"
    ):
        refuse_gaps(shorter, reader.position())
    with pytest.raises(IncompatibleStateError, match="1 continues at 2, and there is 0 to 0"):
        refuse_gaps(MemorySource(TABLES[:1]), reader.position())


def test_it_describes_how_many_rows_there_are():
    assert MemorySource(TABLES).describe() == {"connector": "memory", "row_counts": [5, 2]}
    assert MemorySource(TABLES).schema() == TABLES[0].schema
