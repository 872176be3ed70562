"""The hash table against a dictionary, with as many collisions as one likes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates import key_index
from laminar_core.aggregates.key_index import MISSING, KeyIndex
from tests.sampling import drawn


class Indexed:
    """Keys are integers; their hash is the remainder, so many share one."""

    def __init__(self, hashes_max: int) -> None:
        self.index, self.stored, self.hashes_max = KeyIndex(), np.empty(0, np.int64), hashes_max

    def hashes(self, keys: np.ndarray) -> np.ndarray:
        return (keys % self.hashes_max).astype(np.uint64)

    def find(self, keys: np.ndarray) -> np.ndarray:
        def are_equal(positions: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            return keys[positions] == self.stored[numbers]

        return self.index.find(self.hashes(keys), are_equal)

    def add(self, keys: np.ndarray) -> np.ndarray:
        self.stored = np.append(self.stored, keys)
        return self.index.add(self.hashes(keys))


@settings(deadline=None, max_examples=drawn(60))
@given(
    st.lists(st.lists(st.integers(0, 60), max_size=25), max_size=12), st.sampled_from([1, 7, 99])
)
def test_it_is_a_dictionary(batches: list[list[int]], hashes_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_SLOTS_MIN", 2)
        indexed, model = Indexed(hashes_max), {}
        for batch in batches:
            keys = np.array(batch, np.int64)
            assert indexed.find(keys).tolist() == [model.get(key, MISSING) for key in batch]
            fresh = list(dict.fromkeys(key for key in batch if key not in model))
            numbers = indexed.add(np.array(fresh, np.int64))
            model.update(zip(fresh, numbers.tolist(), strict=True))
            assert (len(indexed.index), sorted(model.values())) == (
                len(model),
                [*range(len(model))],
            )
            assert indexed.find(keys).tolist() == [model[key] for key in batch]


def test_many_keys_fill_at_most_half_of_the_slots() -> None:
    indexed = Indexed(2**62)
    keys = np.arange(0, 10**6, 10) * 0x9E3779B97F4A7C1 % 2**62
    for part in np.array_split(keys, 50):
        indexed.add(part)
        assert 2 * len(indexed.index) <= len(indexed.index._slots)
    assert indexed.find(keys).tolist() == list(range(len(keys)))
    assert set(indexed.find(keys + 1).tolist()) == {MISSING}
