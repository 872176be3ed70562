"""Equal keys have equal bytes, and nothing else changes."""

import math

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.canonical import canonical, canonical_floats, is_ambiguous

NAN = float("nan")
NANS = pa.array(np.array([0xFFF8000000000000, 0x7FF0000000000001], np.uint64)).view(pa.float64())


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_have_one_zero_and_one_nan(data_type: pa.DataType) -> None:
    found = canonical_floats(pa.array([-0.0, 0.0, -1.5, None, NAN, -math.inf]).cast(data_type))
    assert found.type == data_type
    assert str(found.to_pylist()) == "[0.0, 0.0, -1.5, None, nan, -inf]"


def test_every_nan_has_the_same_bits() -> None:
    (bits,) = set(canonical_floats(NANS).view(pa.int64()).to_pylist())
    assert bits == 0x7FF8000000000000


def test_structs_keep_type_and_nulls() -> None:
    data_type = pa.struct([pa.field("x", pa.float64()), pa.field("n", pa.int8(), nullable=False)])
    rows = [{"x": -0.0, "n": 1}, None, {"x": None, "n": 2}]
    found = canonical(pa.array(rows, data_type).slice(0, 3))
    assert found.type == data_type
    assert str(found.to_pylist()) == str([{"x": 0.0, "n": 1}, None, {"x": None, "n": 2}])


def test_a_dictionary_of_floats_becomes_plain() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array([0.0, -0.0]))
    assert str(canonical(column).to_pylist()) == "[0.0, 0.0, None]"


@pytest.mark.parametrize("values", [[1, None], ["a"], [{"n": 1}], [b""]])
def test_other_columns_are_returned_as_they_are(values: list) -> None:
    column = pa.array(values)
    assert not is_ambiguous(column.type)
    assert canonical(column) is column
