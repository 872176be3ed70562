"""The keys with new rows, by pane: each is there once it had a row, and memory is bounded."""

import pyarrow as pa
import pytest

from laminar_core.state import changed_keys
from laminar_core.state.changed_keys import ChangedKeys


def rows(*keys: str | None) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string()), "n": pa.array([1] * len(keys))})


def test_keys_are_taken_once_by_pane() -> None:
    changed = ChangedKeys(["k"])
    changed.add(0, rows("a", "b"))
    changed.add(10, rows("c"))
    changed.add(0, rows("a", None))
    taken = changed.take()
    assert taken.keys() == {0, 10}
    assert set(taken[0]) == set(changed.hashes_of(rows("a", "b", None)))
    assert set(taken[10]) == set(changed.hashes_of(rows("c")))
    assert changed.take() == {}


def test_keys_that_come_again_and_again_are_held_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changed_keys, "_HASHES_MIN", 8)
    changed = ChangedKeys(["k"])
    for _ in range(100):
        changed.add(0, rows("a", "b", "c", "a"))
    taken = changed.take()[0]
    assert set(taken) == set(changed.hashes_of(rows("a", "b", "c")))
    assert len(taken) <= 3 + 8
