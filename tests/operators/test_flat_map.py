"""Functions that return any number of batches, and functions of rows."""

from collections.abc import Iterator
from datetime import UTC

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    OperatorSpec,
    Side,
    Snapshot,
    SubtaskContext,
    modes_taken_by,
)
from laminar_core.operators.flat_map import FlatMapBatches, MapRows
from laminar_core.protocol.types import CheckpointId, Generation

BATCH = pa.record_batch({"n": [3, 0, 1], "word": ["a b c", "", "d"]})
WORD = pa.schema([("word", pa.string())])
PAIR = pa.schema([("n", pa.int64()), ("word", pa.string())])


def run(spec: OperatorSpec, batch: pa.RecordBatch = BATCH) -> list[list[dict]]:
    """Open the operator and push one batch through it; the batches that come out."""
    subtask = spec.open(SubtaskContext("f", 0, 1, 128, Generation(1)), batch.schema)
    results = [result for result in subtask.process(batch) if isinstance(result, pa.RecordBatch)]
    assert all(result.schema == spec.output_schema(batch.schema) for result in results)
    assert list(subtask.on_watermark(1)) == []
    assert subtask.snapshot(CheckpointId(1))() == Snapshot()
    return [result.to_pylist() for result in results]


def words(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for text in batch.column("word").to_pylist():
        yield pa.record_batch([pa.array(text.split(), pa.string())], schema=WORD)


def refused(spec: OperatorSpec) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        run(spec)
    assert "\n" not in str(caught.value)
    return caught.value


# --- batches --------------------------------------------------------------------------------------


def test_a_batch_becomes_batches_and_empty_ones_are_not_sent() -> None:
    found = run(FlatMapBatches("f", words, WORD))
    assert found == [[{"word": "a"}, {"word": "b"}, {"word": "c"}], [{"word": "d"}]]


@pytest.mark.parametrize(
    "many",
    [lambda b: b, lambda b: [b], lambda b: iter([b.slice(0, 0), b])],
    ids=["batch", "list", "iterator"],
)
def test_one_batch_and_its_schema_are_found_however_it_is_returned(many) -> None:
    spec = FlatMapBatches("f", many)
    assert spec.output_schema(BATCH.schema) == BATCH.schema
    assert run(spec) == [BATCH.to_pylist()]


def test_a_schema_is_found_whatever_values_dictionaries_have() -> None:
    days = pa.record_batch({"day": pa.array([1], pa.date32()).dictionary_encode()})
    assert run(FlatMapBatches("f", lambda batch: batch), days) == [days.to_pylist()]


def test_a_schema_is_found_with_identifiers_inside_of_columns() -> None:
    rows = pa.record_batch({"x": pa.nulls(1, pa.list_(pa.uuid()))})
    assert run(FlatMapBatches("f", lambda batch: batch), rows) == [rows.to_pylist()]


def test_no_batch_at_all_is_no_error() -> None:
    assert run(FlatMapBatches("f", lambda _: [], WORD)) == []
    assert run(FlatMapBatches("f", words, WORD), BATCH.slice(0, 0)) == []


def test_rows_go_to_side_outputs_that_are_declared() -> None:
    aside = pa.record_batch({"s": ["x"]})

    def divide(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch | Side]:
        yield rows
        yield Side("aside" if rows.num_rows < 3 else "nowhere", aside)

    spec = FlatMapBatches("f", divide, sides={"aside": aside.schema})
    batch = pa.record_batch({"n": [1, 2, 3]})
    assert spec.output_schema(batch.schema) == batch.schema
    assert spec.side_outputs(batch.schema) == {"aside": aside.schema}
    subtask = spec.open(SubtaskContext("f", 0, 1, 128, Generation(1)), batch.schema)
    _, side = subtask.process(batch.slice(0, 2))
    assert side.rows.equals(aside)
    with pytest.raises(ConfigurationError, match="flat_map 'f' returned rows for the side output"):
        list(subtask.process(batch))


def test_rows_that_come_and_go_are_not_taken_where_some_go_aside() -> None:
    """Goal: a row that goes does not come to a side output as one that comes."""
    plain, divided = (
        FlatMapBatches("f", lambda rows: rows, sides=sides)
        for sides in ({}, {"aside": pa.schema([])})
    )
    assert modes_taken_by(plain) - modes_taken_by(divided) == {"retract"}


def test_results_are_made_one_at_a_time() -> None:
    """Goal: a batch that becomes many is not held in memory at once."""
    made: list[int] = []

    def many(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for n in range(3):
            made.append(n)
            yield batch

    spec = FlatMapBatches("f", many, BATCH.schema)
    subtask = spec.open(SubtaskContext("f", 0, 1, 128, Generation(1)), BATCH.schema)
    results = iter(subtask.process(BATCH))
    next(results)
    assert made == [0]


@pytest.mark.parametrize(
    ("function", "schema", "code", "problem"),
    [
        (words, None, ErrorCode.INVALID_PIPELINE, "returned no batch for an empty one: declare"),
        (lambda b: b.select(["x"]), None, ErrorCode.INVALID_PIPELINE, "failed on an empty batch"),
        (lambda b: [b], WORD, ErrorCode.WRONG_SCHEMA, "returned (n int64, word string) instead of"),
        (lambda _: [[1]], WORD, ErrorCode.WRONG_SCHEMA, "returned a list where a record batch"),
        (lambda _: None, WORD, ErrorCode.WRONG_SCHEMA, "returned a NoneType where a record batch"),
        (lambda _: 7, None, ErrorCode.WRONG_SCHEMA, "returned a int where a record batch"),
        (lambda _: [[1]], None, ErrorCode.WRONG_SCHEMA, "returned a list where a record batch"),
    ],
    ids=["no result", "no column", "other columns", "lists", "nothing", "number", "lists on trial"],
)
def test_a_function_that_does_not_fit_is_refused(function, schema, code, problem: str) -> None:
    error = refused(FlatMapBatches("f", function, schema))
    assert error.code is code
    assert f"flat_map 'f' {problem}" in str(error)


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_becomes_a_row_several_or_none() -> None:
    def split(row: dict) -> dict | list[dict] | None:
        parts = [{"n": row["n"], "word": word} for word in row["word"].split()]
        return parts if len(parts) > 1 else parts[0] if parts else None

    assert run(MapRows("f", split, PAIR)) == [
        [{"n": 3, "word": "a"}, {"n": 3, "word": "b"}, {"n": 3, "word": "c"}, {"n": 1, "word": "d"}]
    ]
    assert run(MapRows("f", lambda _: None, PAIR)) == []


def test_columns_come_in_the_order_of_the_schema() -> None:
    assert run(MapRows("f", lambda row: {"word": row["word"], "n": 1}, PAIR))[0][0] == {
        "n": 1,
        "word": "a b c",
    }


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "x": st.none() | st.floats(allow_nan=False),
            "at": st.none() | st.datetimes(timezones=st.just(UTC)),
            "s": st.none()
            | st.fixed_dictionaries({"a": st.lists(st.text(max_size=3), max_size=2)}),
            "b": st.none() | st.binary(max_size=3),
        }
    ),
    min_size=1,
    max_size=9,
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("a", pa.list_(pa.string()))])),
        ("b", pa.binary()),
    ]
)


@settings(deadline=None)
@given(ROWS)
def test_values_come_through_unchanged(rows: list[dict]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    assert run(MapRows("f", lambda row: row, SCHEMA), batch) == [batch.to_pylist()]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda _: {"n": 1}, "returned (n) instead of a row with (n, word)"),
        (lambda _: {"n": 1, "word": "", "x": 2}, "returned (n, word, x) instead of a row with"),
        (lambda _: [{"n": 1, "word": ""}, 7], "returned a int instead of a row with (n, word)"),
        (lambda _: 7, "returned a int instead of a row with (n, word)"),
        (lambda _: "text", "returned a str instead of a row with (n, word)"),
        (lambda _: {"n": "x", "word": ""}, "returned a value that does not fit column 'n' (int64)"),
        (lambda _: {"n": 2**70, "word": ""}, "returned a value that does not fit column 'n'"),
        (lambda _: {"n": 1.75, "word": ""}, "returned a value that does not fit column 'n'"),
        (lambda _: {"n": 1, "word": object()}, "a value that does not fit column 'word'"),
    ],
    ids=[
        "missing",
        "unknown",
        "number",
        "only a number",
        "text",
        "type",
        "range",
        "fraction",
        "object",
    ],
)
def test_a_row_that_does_not_fit_is_refused(function, problem: str) -> None:
    error = refused(MapRows("f", function, PAIR))
    assert error.code is ErrorCode.WRONG_SCHEMA
    assert problem in str(error)


def test_a_schema_without_columns_or_with_one_twice_is_refused() -> None:
    assert "at least one column" in str(refused(MapRows("f", lambda row: row, pa.schema([]))))
    twice = pa.schema([("n", pa.int64()), ("n", pa.int64())])
    assert "two columns would be called 'n'" in str(refused(MapRows("f", lambda row: row, twice)))


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(KeyError, match="amount"):
        run(MapRows("f", lambda row: {"n": row["amount"], "word": ""}, PAIR))


def test_functions_are_known_by_name_and_source() -> None:
    assert FlatMapBatches("f", words).describe()["kind"] == "flat-map"
    described = MapRows("f", lambda row: row, PAIR).describe()
    assert described["kind"] == "map-rows"
    assert FlatMapBatches("f", words).describe() == FlatMapBatches("g", words, WORD).describe()
