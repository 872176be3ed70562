"""The benchmark of joins by themselves, with few rows: what it counts is what it says."""

import pytest

from benchmarks.join_operators import LOADS, Load, measured


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_results_and_rows_held_are_counted(load: Load) -> None:
    found = {
        result.name.removeprefix(f"join_{load.name}"): result.value
        for result in measured(load, 600, 3)
    }
    assert found[""] > 0
    assert found["_stored"] > 0
    assert found["_pause"] < found["_tables"] + 1_000
