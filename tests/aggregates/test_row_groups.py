"""Rows by group: what the functions that need whole groups are given."""

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.row_groups import RowGroups, listed, one_group, sums, unlisted


def groups_of(keys: dict[str, list]) -> tuple[pa.Table, RowGroups]:
    found: list[RowGroups] = []

    def fold(groups: RowGroups) -> pa.Array:
        found.append(groups)
        return pa.array(np.diff(groups.starts))

    columns = {name: pa.chunked_array([values[:1], values[1:]]) for name, values in keys.items()}
    rows = pa.table({"x": range(len(next(iter(keys.values()), [1, 2, 3])))})
    return group(columns, rows, [Reduction("size", fold, None)]), found[0]


def test_rows_of_a_group_are_together_in_order_of_arrival() -> None:
    grouped, groups = groups_of({"k": ["a", "b", None, "a", "b"], "l": [1, 1, 1, 1, 2]})
    assert grouped.to_pylist() == [
        {"k": "a", "l": 1, "size": 2},
        {"k": "b", "l": 1, "size": 1},
        {"k": None, "l": 1, "size": 1},
        {"k": "b", "l": 2, "size": 1},
    ]
    assert groups.order.tolist() == [0, 3, 1, 2, 4]
    assert groups.numbers().tolist() == [0, 1, 2, 0, 3]


def test_without_keys_all_rows_are_one_group_even_none() -> None:
    grouped, groups = groups_of({})
    assert (grouped.to_pylist(), groups.count) == ([{"size": 3}], 1)
    assert (one_group(0).count, one_group(0).numbers().tolist()) == (1, [])


def test_no_rows_are_no_group() -> None:
    rows = pa.table({"k": pa.array([], pa.string())})
    fold = Reduction("size", lambda groups: pa.array(np.diff(groups.starts)), None)
    assert group({"k": rows.column("k")}, rows, [fold]).num_rows == 0


def test_lists_go_and_come() -> None:
    lists = listed(np.array([0, 0, 2]), pa.array([7, 8, 9]), 4)
    assert lists.to_pylist() == [[7, 8], [], [9], []]
    numbers, values = unlisted(lists.slice(1), np.array([5, 6, 7]))
    assert (numbers.tolist(), values.to_pylist()) == ([6], [9])


def test_sums_of_nothing_are_floating_point_too() -> None:
    assert sums(np.empty(0, np.int64), np.empty(0), 2).dtype == np.float64
