"""Stored rows are read under the names that the pipeline has, where a person said so."""

import json

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import VERSIONS_KEY
from laminar_core.state.column_names import (
    columns_in,
    renamed_columns,
    unclear_columns,
    with_names_of,
)


def schema(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])


@pytest.mark.parametrize(
    ("before", "now", "names", "found"),
    [
        (["k"], ["shop"], {"k": "shop"}, {"k": "shop"}),
        (["sum(v)"], ["sum(w)"], {"v": "w"}, {"sum(v)": "sum(w)"}),
        (["last(v, t)"], ["last(v, at)"], {"t": "at"}, {"last(v, t)": "last(v, at)"}),
        (["count(*)"], ["count(*)"], {"k": "shop"}, {}),
        (["shop"], ["shop"], {"k": "shop"}, {}),
        (["k"], ["k", "shop"], {"k": "shop"}, {}),
        (["k", "shop"], ["shop"], {"k": "shop"}, {}),
        (["k"], ["store"], {"k": "shop"}, {}),
        (["sum(k)", "k"], ["sum(k)", "shop"], {"k": "shop"}, {"k": "shop"}),
    ],
    ids=["plain", "of one", "of two", "other", "done", "added", "both", "neither", "only one"],
)
def test_a_name_is_taken_where_the_rows_have_the_old_and_the_pipeline_the_new_one(
    before: list[str], now: list[str], names: dict[str, str], found: dict[str, str]
) -> None:
    assert renamed_columns(schema(*before), schema(*now), names) == found


@pytest.mark.parametrize(
    ("before", "now", "names", "found"),
    [
        (["a", "b"], ["b", "a"], {"a": "b", "b": "a"}, [("a", "b"), ("b", "a")]),
        (["sum(a)", "sum(b)"], ["sum(b)", "sum(a)"], {"a": "b", "b": "a"}, 2),
        (["a", "b"], ["b", "c"], {"a": "b", "b": "c"}, [("a", "b")]),
        (["sum(a)", "sum(b)"], ["sum(b)"], {"a": "b"}, [("sum(a)", "sum(b)")]),
        (["a"], ["b"], {"a": "b", "b": "a"}, []),
        (["b"], ["c"], {"a": "b", "b": "c"}, []),
        (["a", "b"], ["a", "b"], {"a": "b"}, []),
        (["a", "b"], ["a", "c"], {"b": "c"}, []),
    ],
    ids=["swap", "of sums", "chain", "taken", "one of two", "later one", "done", "plain"],
)
def test_no_column_can_take_the_place_of_another(
    before: list[str], now: list[str], names: dict[str, str], found: list[tuple[str, str]] | int
) -> None:
    unclear = list(unclear_columns(schema(*before), schema(*now), names))
    assert (len(unclear) if isinstance(found, int) else unclear) == found


def test_values_and_versions_keep_their_accumulator() -> None:
    metadata = {VERSIONS_KEY: json.dumps({"sum(v)": 2, "count(*)": 1}).encode()}
    rows = pa.table({"k": ["a"], "sum(v)": [7]}).replace_schema_metadata(metadata)
    now = pa.schema([("shop", pa.string()), ("sum(w)", pa.int64())])
    found = with_names_of(now, rows, {"v": "w", "k": "shop"})
    assert found.to_pylist() == [{"shop": "a", "sum(w)": 7}]
    assert json.loads(found.schema.metadata[VERSIONS_KEY]) == {"sum(w)": 2, "count(*)": 1}


def test_nothing_is_renamed_unless_it_is_said() -> None:
    rows = pa.table({"k": ["a"]})
    assert with_names_of(pa.schema([("shop", pa.string())]), rows, {}) is rows


def test_accumulators_are_of_columns() -> None:
    assert columns_in(schema("k", "last(v, t)")) == {"k", "last(v, t)", "v", "t"}
