"""Runs of entries stay few, and equal halves of hashes do not mix keys up."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.operators.process import entries
from laminar_core.operators.process.entries import EntryTable, offsets
from laminar_core.operators.process.maps import MapState
from laminar_core.state.chunks import MemoryBackend
from tests.state.shelves import stored

LAYOUT = MapState(pa.int64(), pa.int64()).layout("held", [pa.field("k", pa.int64())])


def rows(*changes: tuple[int, int, int | None]) -> pa.Table:
    columns = zip(*changes, strict=True)
    return pa.table([pa.array(c, pa.int64()) for c in columns], schema=LAYOUT.schema.remove(0))


def test_runs_stay_few() -> None:
    table = EntryTable(LAYOUT, MemoryBackend(), is_reused=True)
    for n in range(300):
        table.change(rows((n % 7, n, n)))
    assert len(table._runs) < 12
    owners, found = table.of_keys(pa.table({"k": [0, 9]}))
    assert owners.tolist() == [0] * 43
    assert sorted(found.column("_entry").to_pylist()) == list(range(0, 300, 7))


def test_removals_leave_memory_when_they_reach_the_oldest_run() -> None:
    table = EntryTable(LAYOUT, MemoryBackend(), is_reused=True)
    table.change(rows((1, 1, 1), (1, 2, 2)))
    table.take_changes()
    table.change(rows((1, 1, None), (1, 2, None)))
    assert table.row_count == 0
    assert stored(table.take_changes()).num_rows == 2


def test_keys_and_entries_are_compared_and_not_only_their_hashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entries, "hash_columns", lambda _, count: np.zeros(count, np.uint64))
    table = EntryTable(LAYOUT, MemoryBackend(), is_reused=True)
    table.change(rows((1, 1, 11), (2, 1, 21)))
    table.change(rows((1, 2, 12), (2, 1, 22)))
    positions, found = table.of_entries(pa.table({"k": [2, 1, 3], "_entry": [1, 2, 1]}))
    assert positions.tolist() == [0, 1]
    assert found.column("held").to_pylist() == [22, 12]
    owners, found = table.of_keys(pa.table({"k": [1, 2]}))
    assert sorted(zip(owners.tolist(), found.column("held").to_pylist(), strict=True)) == [
        (0, 11), (0, 12), (1, 22),
    ]  # fmt: skip


def test_offsets_of_lists_with_gaps() -> None:
    assert offsets(np.array([1, 1, 3]), 5).to_pylist() == [0, 0, 2, 2, 3, 3]
