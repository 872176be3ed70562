"""Collected rows are state: exactly once through any number of restarts."""

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import Snapshot, SubtaskContext

CONTEXT = SubtaskContext("collect", 0, 1, 128, generation=1)
SCHEMA = pa.schema([("n", pa.int64())])


def batch(*numbers):
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def rows(writer):
    return [row for part in writer.collected() for row in part["n"].to_pylist()]


def test_a_restart_continues_with_the_rows_of_the_snapshot():
    before = CollectSink().open(CONTEXT, SCHEMA)
    before.write(batch(1, 2))
    snapshot = before.snapshot(1)()
    before.write(batch(3))
    after = CollectSink().open(CONTEXT, SCHEMA)
    after.restore([snapshot])
    after.write(batch(4))
    assert rows(before) == [1, 2, 3]
    assert rows(after) == [1, 2, 4]


def test_rows_written_after_the_cut_are_not_in_the_snapshot():
    writer = CollectSink().open(CONTEXT, SCHEMA)
    writer.write(batch(1))
    pending = writer.snapshot(1)
    writer.write(batch(2))
    assert [table.to_pydict() for table in pending().rows()] == [{"n": [1]}]


def test_snapshots_of_several_subtasks_merge():
    writer = CollectSink().open(CONTEXT, SCHEMA)
    tables = [pa.Table.from_batches([batch(n)]) for n in (1, 2)]
    writer.restore([Snapshot.of(tables[:1]), Snapshot(), Snapshot.of(tables[1:])])
    assert rows(writer) == [1, 2]


def test_no_rows_are_no_table():
    writer = CollectSink().open(CONTEXT, SCHEMA)
    writer.write(batch())
    assert writer.snapshot(1)() == Snapshot()
    assert rows(writer) == []


def test_dictionaries_of_different_batches_are_collected_as_plain_strings():
    parts = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c"])]
    writer = CollectSink().open(CONTEXT, pa.schema([("key", parts[0].type)]))
    for part in parts:
        writer.write(pa.record_batch({"key": part}))
    (table,) = writer.snapshot(1)().rows()
    assert table.schema == pa.schema([("key", pa.string())])
    assert table["key"].to_pylist() == ["a", "b", "c"]


def test_one_row_too_many_is_refused_and_the_rows_so_far_stay():
    writer = CollectSink(max_rows=2).open(CONTEXT, SCHEMA)
    writer.write(batch(1, 2))
    with pytest.raises(DataError, match="at most 2 rows") as caught:
        writer.write(batch(3))
    assert caught.value.code is ErrorCode.TOO_MANY_ROWS
    assert rows(writer) == [1, 2]


def test_a_restored_writer_counts_the_restored_rows():
    writer = CollectSink(max_rows=2).open(CONTEXT, SCHEMA)
    writer.restore([Snapshot.of([pa.Table.from_batches([batch(1, 2)])])])
    with pytest.raises(DataError):
        writer.write(batch(3))


def test_there_is_nothing_to_commit():
    assert CollectSink().committer() is None


def test_a_limit_below_one_is_refused():
    with pytest.raises(ConfigurationError):
        CollectSink(max_rows=0)
