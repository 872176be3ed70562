"""The columns of a lookup: which are added, under which names, and how keys are compared."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.lookups.columns import LookupColumns, known_keys

LEFT = pa.schema([("id", pa.int64()), ("key", pa.float64()), ("v", pa.int64())])
RIGHT = pa.schema([("key", pa.float64()), ("v", pa.dictionary(pa.int32(), pa.string()))])


def columns(**options: object) -> LookupColumns:
    chosen: dict = {"left_keys": ("key",), "right_keys": ("key",), "how": "left", "columns": None}
    return LookupColumns(**(chosen | {"suffix": "_right"} | options))


def test_all_columns_but_shared_keys_are_added_and_taken_names_get_a_suffix() -> None:
    assert columns().joined(LEFT, RIGHT).schema.names == ["id", "key", "v", "v_right"]
    assert columns().joined(LEFT, RIGHT).schema.field("v_right").type == pa.string()
    assert columns(hidden=("v",)).joined(LEFT, RIGHT).schema.names == ["id", "key", "v"]
    assert columns(columns=("key", "v"), suffix="2").added(RIGHT).names == ["v"]
    assert columns(columns=("v",), hidden=("v",)).added(RIGHT).names == ["v"]
    with pytest.raises(ConfigurationError, match="name each column once"):
        columns(columns=("v", "v")).added(RIGHT)
    with pytest.raises(ConfigurationError, match="no column 'w'"):
        columns(columns=("w",)).added(RIGHT)


def test_keys_of_another_type_or_number_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'id' is int64 on the left and 'key' is double"):
        columns(left_keys=("id",)).check("lookup", LEFT, RIGHT)
    with pytest.raises(ConfigurationError, match="as many on both sides"):
        columns(left_keys=("id", "key")).check("lookup", LEFT, RIGHT)


def test_equal_keys_have_one_form_and_null_is_not_known() -> None:
    rows = pa.table({"key": [0.0, -0.0, float("nan"), None]})
    keys = columns().keys_of(rows, 0)
    assert not np.signbit(keys.column("key").to_numpy()[:2]).any()
    assert known_keys(keys).tolist() == [True, True, True, False]


def test_inner_drops_what_was_not_found_also_if_nothing_is_added() -> None:
    rows = pa.table({"id": [1, 2], "key": [1.0, 2.0], "v": [3, 4]})
    chosen = columns(how="inner", columns=())
    nothing = rows.select([])
    joined = chosen.joined(rows.schema, RIGHT)
    found = chosen.result(joined, rows, nothing, np.array([False, True]))
    assert found is not None
    assert found.to_pylist() == [{"id": 2, "key": 2.0, "v": 4}]
    assert chosen.result(joined, rows, nothing, np.array([False, False])) is None


def test_a_null_in_a_dictionary_is_not_known() -> None:
    keys = pa.table({"key": pa.DictionaryArray.from_arrays([0, 1], ["a", None])})
    assert known_keys(keys).tolist() == [True, False]
