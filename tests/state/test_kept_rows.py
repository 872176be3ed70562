"""Rows on a shelf: what is asked for is read, and what is put away is the most at once."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.state import kept_rows
from laminar_core.state.kept_rows import (
    Room,
    RowsOnShelf,
    all_or,
    common_cuts,
    hash_order,
    in_pieces,
    is_held,
    merged_order,
    taken,
)
from tests.state.shelves import GATHERED_BYTES, rocks_shelf

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"n": numbers, "s": [str(n) for n in numbers]}, SCHEMA)


def on_shelf(count: int) -> RowsOnShelf:
    room = Room(SCHEMA, rocks_shelf(SCHEMA))
    return room.rows_in(room.put(table(0, count), 0, np.arange(count, dtype=np.uint32)))


@pytest.mark.parametrize("wanted", [[], [0], [99, 0, 5, 5, 98], list(range(100))])
def test_rows_come_in_the_order_asked_for(
    wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "BLOCK_BYTES", 70)
    rows = on_shelf(100)
    assert rows.nbytes > 0
    assert not is_held(rows)
    found = rows.take(pa.array(wanted, pa.int64()))
    assert found.schema.equals(SCHEMA)
    assert found.column("n").to_pylist() == wanted
    names = rows.select(["s"]).take(pa.array(wanted, pa.int64()))
    assert names.column_names == ["s"]
    assert names.column("s").to_pylist() == [str(n) for n in wanted]


def test_only_parts_with_a_wanted_row_are_read_and_each_once() -> None:
    asked: list[int] = []
    parts = [table(0, 3), table(3, 3), table(6, 3)]

    def part(number: int) -> pa.Table:
        asked.append(number)
        return parts[number]

    found = taken(np.array([7, 0, 8, 1]), np.array([0, 3, 6]), part, SCHEMA.empty_table())
    assert found.column("n").to_pylist() == [7, 0, 8, 1]
    assert asked == [0, 2]


def test_the_largest_parts_are_put_away_until_half_of_the_room_is_free() -> None:
    room = Room(SCHEMA, rocks_shelf(SCHEMA))
    row_bytes = table(0, 10).nbytes // 10
    parts = [table(0, 1), table(0, GATHERED_BYTES // row_bytes), table(0, 2), on_shelf(3)]
    assert room.overfull(parts[:1]) == []
    assert room.overfull(parts) == [1]
    assert Room(SCHEMA).overfull(parts) == [], "memory has room for everything"


def test_pieces_of_a_shelf_are_blocks_and_of_memory_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_rows, "BLOCK_BYTES", 70)
    wanted = np.arange(1, 40, 2)
    for rows, is_one in ((table(0, 40), True), (on_shelf(40), False)):
        pieces = list(in_pieces(rows, wanted, 40))
        assert (len(pieces) == 1) == is_one
        assert pa.concat_tables(pieces).column("n").to_pylist() == wanted.tolist()


def test_a_table_in_memory_is_not_copied_if_all_of_it_is_wanted() -> None:
    rows = table(0, 4)
    assert all_or(rows, np.arange(4), 4) is rows
    assert all_or(rows, np.array([1, 3]), 4).column("n").to_pylist() == [1, 3]


def test_equal_halves_keep_their_order() -> None:
    upper = np.array([2**31, 5, 2**16 + 5, 5, 0, 2**31], np.uint32)
    assert hash_order(upper).tolist() == [4, 1, 3, 2, 0, 5]


def test_equal_values_are_in_one_piece() -> None:
    ordered = [np.array([1, 1, 1, 1, 5, 9]), np.array([1, 5, 5, 7]), np.array([], np.int64)]
    pieces = list(common_cuts(ordered, 2))
    for one, cuts in zip(ordered, zip(*pieces, strict=True), strict=True):
        assert np.concatenate([one[cut] for cut in cuts]).tolist() == one.tolist()
    for slices in pieces[:-1]:
        assert len({int(v) for one, cut in zip(ordered, slices, strict=True) for v in one[cut]}) < 3
    assert list(common_cuts([np.array([], np.int64)], 2)) == []


def test_sorted_rows_are_merged_as_if_they_were_sorted_again() -> None:
    drawn = np.random.default_rng(2)
    for counts in ((0, 0), (0, 3), (3, 0), (40, 7), (7, 40)):
        older, newer = (np.sort(drawn.integers(0, 20, n).astype(np.uint32)) for n in counts)
        wanted = hash_order(np.concatenate([older, newer]))
        assert merged_order(older, newer).tolist() == wanted.tolist()
