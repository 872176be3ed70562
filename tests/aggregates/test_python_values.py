"""Values of a user's function become arrays, or are refused."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.python_values import array_of

PAIR = pa.struct([("n", pa.int32()), ("x", pa.float64())])


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        ([1, None, 2.0, np.int32(3)], pa.int64()),
        ([1.5, 2], pa.float32()),
        ([{"n": 1, "x": 1.5}, None, {"x": 2.5}], PAIR),
        ([[1, 2.0], None, []], pa.list_(pa.int64())),
        ([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        (["1.5"], pa.string()),
        ([], pa.int8()),
    ],
)
def test_what_fits_is_as_pyarrow_makes_it(values: list, data_type: pa.DataType) -> None:
    assert array_of(values, data_type).equals(pa.array(values, data_type))


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        ([1, 1.75], pa.int64()),
        ([np.float64(0.5)], pa.uint8()),
        ([{"n": 1.5, "x": 1.5}], PAIR),
        ([[1, 2.5]], pa.list_(pa.int64())),
        ([[{"n": 2.5}]], pa.large_list(PAIR)),
    ],
)
def test_no_fraction_is_cut_off(values: list, data_type: pa.DataType) -> None:
    with pytest.raises(ValueError, match="a float with a fraction"):
        array_of(values, data_type)
