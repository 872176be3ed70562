"""Places of keys: a key keeps its own while batches come, and a place leads back to its key."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates import key_places
from laminar_core.aggregates.key_places import KeyPlaces
from laminar_core.aggregates.numbered_keys import ADDRESSES_PER_ROW_MAX
from tests.aggregates.test_numbered_keys import INTEGERS, ends_of


def integers(*values: int, of: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, of or pa.int64())])


def listed(*values: str, dictionary: list[str] | None = None) -> pa.ChunkedArray:
    words = dictionary or list(dict.fromkeys(values))
    indices = pa.array([words.index(value) for value in values], pa.int32())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, pa.array(words))])


def places_of(places: KeyPlaces, *keys: pa.ChunkedArray) -> list[int]:
    return places.of_rows(keys, np.empty(len(keys[0]), np.intp)).tolist()


def back(places: KeyPlaces, at: list[int]) -> list[tuple]:
    columns = places.keys(np.array(at, np.intp))
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.fixture
def many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_places, "KEYS_PER_ROW_MAX", 100)


class TestIntegers:
    def test_they_keep_their_places_while_they_stay_in_the_range(self) -> None:
        first = integers(10, 13, 11)
        known = KeyPlaces.of([first], None, 3)
        assert known is not None
        assert KeyPlaces.of([integers(12, 12, 10)], known, 3) is known
        assert back(known, places_of(known, first)) == [(10,), (13,), (11,)]

    def test_a_wider_range_moves_them_and_has_room_for_more(self) -> None:
        known = KeyPlaces.of([integers(10, 11)], None, 2)
        assert known is not None
        wider = KeyPlaces.of([integers(4, 9)], known, 100)
        assert wider is not None
        assert not wider.keeps(known)
        assert back(wider, places_of(wider, integers(4, 11))) == [(4,), (11,)]
        spare = KeyPlaces.of([integers(1_000, 2_000)], None, 1_000)
        assert spare is not None
        assert KeyPlaces.of([integers(990, 2_010)], spare, 1_000) is spare

    def test_too_wide_a_range_has_none(self) -> None:
        far = integers(0, 2 * ADDRESSES_PER_ROW_MAX)
        assert KeyPlaces.of([far], None, 2) is None
        assert KeyPlaces.of([far], None, 3) is not None
        known = KeyPlaces.of([integers(*range(100))], None, 100)
        assert known is not None
        assert KeyPlaces.of([integers(50)], known, 1) is None, "it would not pay"

    def test_a_range_elsewhere_replaces_one_that_would_grow_too_wide(self) -> None:
        known = KeyPlaces.of([integers(0, 1)], None, 2)
        assert known is not None
        elsewhere = KeyPlaces.of([integers(10**12, 10**12 + 1)], known, 2)
        assert elsewhere is not None
        assert not elsewhere.keeps(known)
        assert elsewhere.count < 10

    @pytest.mark.parametrize("data_type", INTEGERS)
    @pytest.mark.parametrize("end", [0, 1])
    def test_the_ends_of_a_type_are_no_problem(self, data_type: pa.DataType, end: int) -> None:
        low, high = ends_of(data_type)
        values = (low, low + 100) if end == 0 else (high - 100, high)
        key = integers(*values, of=data_type)
        places = KeyPlaces.of([key], None, 1_000)
        assert places is not None
        assert back(places, places_of(places, key)) == [(values[0],), (values[1],)]
        assert places.keys(np.array([0], np.intp))[0].type == data_type

    def test_nulls_have_no_place(self) -> None:
        assert KeyPlaces.of([pa.chunked_array([pa.array([1, None])])], None, 2) is None


@pytest.mark.usefixtures("many_keys")
class TestDictionaries:
    def test_a_key_has_the_same_place_in_every_dictionary(self) -> None:
        known = KeyPlaces.of([listed("b", "a")], None, 2)
        assert known is not None
        after = KeyPlaces.of([listed("a", "b", "c")], known, 3)
        assert after is not None
        assert after.keeps(known)
        assert places_of(after, listed("a", "b", "c")) == [1, 0, 2]
        assert back(after, [0, 1, 2]) == [("b",), ("a",), ("c",)]

    def test_the_same_dictionary_is_looked_up_once(self) -> None:
        known = KeyPlaces.of([listed("b", "a")], None, 2)
        assert KeyPlaces.of([listed("a", dictionary=["b", "a"])], known, 1) is known

    def test_more_keys_than_there_is_room_for_move_them(self) -> None:
        known = KeyPlaces.of([listed("a")], None, 1)
        assert known is not None
        assert known.count == 2
        after = KeyPlaces.of([listed("b", "c", "a")], known, 3)
        assert after is not None
        assert not after.keeps(known)
        assert back(after, places_of(after, listed("a", "b", "c", dictionary=["b", "c", "a"]))) == [
            ("a",), ("b",), ("c",),
        ]  # fmt: skip

    def test_a_value_that_a_dictionary_repeats_has_one_place(self) -> None:
        key = listed("a", dictionary=["a", "b", "a"])
        doubled = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1]), key.chunk(0).dictionary)
        places = KeyPlaces.of([pa.chunked_array([doubled])], None, 3)
        assert places is not None
        assert places_of(places, pa.chunked_array([doubled])) == [0, 0, 1]

    def test_a_list_that_grows_too_long_begins_anew(self, monkeypatch) -> None:
        monkeypatch.setattr(key_places, "KEYS_PER_ROW_MAX", 1)
        known = KeyPlaces.of([listed("a", "b", "c")], None, 3)
        assert known is not None
        after = KeyPlaces.of([listed("x", "x")], known, 2)
        assert after is not None
        assert not after.keeps(known)
        assert after.count == 2
        assert KeyPlaces.of([listed("x", dictionary=["x", "y"])], None, 1) is None

    def test_nulls_have_no_place(self) -> None:
        nulls = pa.chunked_array([pa.array(["a", None]).dictionary_encode()])
        hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
        assert KeyPlaces.of([nulls], None, 2) is None
        assert KeyPlaces.of([pa.chunked_array([hidden])], None, 2) is None

    @pytest.mark.parametrize("index", [2, -1])
    def test_an_index_without_a_value_is_an_error(self, index: int) -> None:
        wrong = pa.DictionaryArray.from_arrays(
            pa.array([0, index], pa.int32()), pa.array(["a", "b"]), safe=False
        )
        places = KeyPlaces.of([pa.chunked_array([wrong])], None, 2)
        assert places is not None
        with pytest.raises(IndexError, match="no value for an index"):
            places_of(places, pa.chunked_array([wrong]))


@pytest.mark.usefixtures("many_keys")
class TestSeveralColumns:
    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.integers(0, 2)), min_size=8
        )
    )
    def test_each_combination_has_a_place_of_its_own(self, rows: list[tuple]) -> None:
        texts, *numbers = zip(*rows, strict=True)
        keys = [listed(*texts), *(integers(*column) for column in numbers)]
        places = KeyPlaces.of(keys, None, 100)
        assert places is not None
        at = places_of(places, *keys)
        assert max(at) < places.count
        assert back(places, at) == rows
        assert KeyPlaces.of(keys, places, 100) is places

    def test_too_many_combinations_have_none(self) -> None:
        keys = [integers(*range(10)), integers(*range(10))]
        assert KeyPlaces.of(keys, None, 10) is None
        assert KeyPlaces.of(keys, None, 13) is not None

    def test_one_column_that_has_none_is_enough(self) -> None:
        floats = pa.chunked_array([pa.array([1.5, 2.5])])
        assert KeyPlaces.of([integers(1, 2), floats], None, 2) is None

    def test_they_stay_if_those_of_every_column_do(self) -> None:
        known = KeyPlaces.of([listed("a", "b"), integers(1, 2)], None, 2)
        assert known is not None
        more = KeyPlaces.of([listed("c", "a"), integers(2, 1)], known, 2)
        moved = KeyPlaces.of([listed("a", "b"), integers(1, 5)], known, 9)
        assert more is not None
        assert moved is not None
        assert more.keeps(known)
        assert not moved.keeps(known)
