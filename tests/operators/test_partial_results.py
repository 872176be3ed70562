"""The columns that merging operators take and give, whatever they merge by."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg
from laminar_core.operators.partial_results import combined_schema, partial_schema, result_schema

PARTIAL = pa.schema({"extra": pa.bool_(), "count(*)": pa.int64(), "shop": pa.string()})


def test_partial_results_are_keys_and_then_accumulators() -> None:
    assert partial_schema(PARTIAL, ["shop"], [agg.count()]).names == ["shop", "count(*)"]


def test_results_are_keys_what_is_between_and_aggregates() -> None:
    between = [pa.field("window_start", pa.int64())]
    made = result_schema(PARTIAL, ["shop"], [agg.count(name="n")], between)
    assert made == pa.schema({"shop": pa.string(), "window_start": pa.int64(), "n": pa.int64()})


def test_an_input_without_a_column_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        partial_schema(PARTIAL, ["city"], [agg.count()])
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        result_schema(PARTIAL, ["shop"], [agg.count(name="shop")])
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_a_key_that_is_called_like_the_key_group_of_a_checkpoint_is_refused() -> None:
    rows = pa.schema({"key_group": pa.string()})
    with pytest.raises(ConfigurationError, match="'key_group'; rename the key column") as caught:
        combined_schema(rows, ["key_group"], [])
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
