"""Map, filter, select: rows in, rows out, nothing to save."""

import functools

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import OperatorSpec, Snapshot, SubtaskContext
from laminar_core.operators.stateless import (
    FilterRows,
    MapBatches,
    SelectColumns,
    describe_function,
)
from laminar_core.protocol.types import CheckpointId, Generation

BATCH = pa.record_batch({"amount": [5, -1, None, 7], "merchant": ["a", "b", "c", "d"]})


def run(spec: OperatorSpec, batch: pa.RecordBatch = BATCH) -> list[dict]:
    """Open the operator and push one batch through it; the rows that come out."""
    context = SubtaskContext(spec.operator_id, 0, 1, 128, Generation(1))
    subtask = spec.open(context, batch.schema)
    results = list(subtask.process(batch))
    assert all(result.schema == spec.output_schema(batch.schema) for result in results)
    assert all(result.num_rows for result in results), "nothing is sent that has no rows"
    assert list(subtask.on_watermark(1)) == []
    assert subtask.snapshot(CheckpointId(1))() == Snapshot()
    subtask.restore([Snapshot()])
    return [row for result in results for row in result.to_pylist()]


def with_fee(batch: pa.RecordBatch) -> pa.RecordBatch:
    fee = pc.multiply(batch.column("amount"), 2)
    return pa.record_batch({"merchant": batch.column("merchant"), "fee": fee})


def test_map_replaces_batches_and_finds_its_schema_itself() -> None:
    assert run(MapBatches("m", with_fee))[0] == {"merchant": "a", "fee": 10}
    schema = MapBatches("m", with_fee).output_schema(BATCH.schema)
    assert schema == pa.schema([("merchant", pa.string()), ("fee", pa.int64())])


def test_a_declared_schema_spares_the_trial() -> None:
    def first_row(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"n": [batch.column("amount")[0].as_py()]})  # Fails without rows.

    assert run(MapBatches("m", first_row, pa.schema([("n", pa.int64())]))) == [{"n": 5}]
    with pytest.raises(ConfigurationError, match="map 'm' failed on an empty batch: IndexError"):
        MapBatches("m", first_row).output_schema(BATCH.schema)


def test_a_misspelt_column_in_a_map_is_reported_in_one_line() -> None:
    spec = MapBatches("m", lambda batch: batch.select(["amont"]))
    with pytest.raises(ConfigurationError, match="amont") as caught:
        spec.output_schema(BATCH.schema)
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
    assert "\n" not in str(caught.value)


def test_a_result_of_another_schema_is_refused() -> None:
    spec = MapBatches("m", with_fee, schema=pa.schema([("fee", pa.int64())]))
    with pytest.raises(ConfigurationError) as caught:
        run(spec)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert str(caught.value) == (
        "map 'm' returned (merchant string, fee int64) instead of (fee int64)"
    )


@pytest.mark.parametrize("given", [None, 7, pa.table(BATCH.to_pydict())], ids=["no", "7", "table"])
def test_a_result_that_is_no_batch_is_refused_in_one_line(given: object) -> None:
    wrong, said = (lambda _: given), f"map 'm' returned {type(given).__name__} "
    with pytest.raises(ConfigurationError, match=f"{said}for an empty batch: return a") as caught:
        MapBatches("m", wrong).output_schema(BATCH.schema)
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
    with pytest.raises(ConfigurationError, match=f"{said}instead of") as caught:
        run(MapBatches("m", wrong, schema=BATCH.schema))
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


def test_filter_keeps_what_is_true_and_null_is_not() -> None:
    kept = [{"amount": 5, "merchant": "a"}, {"amount": 7, "merchant": "d"}]
    assert run(FilterRows("f", pc.field("amount") > 0)) == kept
    assert run(FilterRows("f", lambda batch: pc.greater(batch.column("amount"), 0))) == kept


def test_a_filter_that_keeps_nothing_sends_nothing() -> None:
    assert run(FilterRows("f", pc.field("amount") > 100)) == []


def test_a_misspelt_column_in_a_filter_is_reported_with_the_columns_there_are() -> None:
    with pytest.raises(ConfigurationError) as caught:
        FilterRows("f", pc.field("amont") > 0).output_schema(BATCH.schema)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert str(caught.value) == "no column 'amont'; there are: amount, merchant"


@pytest.mark.parametrize(
    "predicate",
    [
        pc.field("merchant") > 0,
        lambda batch: batch.column("amont"),
        lambda batch: batch.column("amount"),
    ],
    ids=["types", "missing column", "not boolean"],
)
def test_a_filter_that_does_not_fit_is_refused_before_it_runs(predicate: object) -> None:
    with pytest.raises(ConfigurationError, match="filter 'f' does not fit its input") as caught:
        FilterRows("f", predicate).output_schema(BATCH.schema)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert "\n" not in str(caught.value)


def test_select_keeps_columns_in_the_order_asked() -> None:
    assert run(SelectColumns("s", ("merchant", "amount")))[1] == {"merchant": "b", "amount": -1}
    with pytest.raises(ConfigurationError, match="no column 'amont'; there are"):
        SelectColumns("s", ("amont",)).output_schema(BATCH.schema)
    with pytest.raises(ConfigurationError, match="two columns would be called 'amount'"):
        SelectColumns("s", ("amount", "amount")).output_schema(BATCH.schema)


@pytest.mark.parametrize(
    "spec",
    [
        MapBatches("o", with_fee),
        FilterRows("o", pc.field("amount") > 0),
        SelectColumns("o", ("amount",)),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_an_empty_batch_is_harmless(spec: OperatorSpec) -> None:
    assert run(spec, BATCH.slice(0, 0)) == []


def test_dictionaries_of_any_values_can_be_mapped_and_filtered() -> None:
    days = pa.record_batch({"day": pa.array([1, None], pa.date32()).dictionary_encode()})
    assert run(MapBatches("m", lambda batch: batch), days) == days.to_pylist()
    assert run(FilterRows("f", pc.field("day").is_valid()), days) == days.to_pylist()[:1]
    assert run(FilterRows("f", lambda rows: rows.column(0).is_null()), days) == [{"day": None}]


def test_identifiers_and_dictionaries_inside_of_columns_can_be_mapped_and_filtered() -> None:
    days = pa.array([1, None], pa.date32()).dictionary_encode()
    for of in (pa.list_(pa.uuid()), pa.map_(pa.string(), pa.uuid()), pa.list_(days.type)):
        rows = pa.record_batch({"x": pa.nulls(2, of), "n": [1, 2]})
        assert run(MapBatches("m", lambda batch: batch), rows) == rows.to_pylist()
        assert run(FilterRows("f", pc.field("n") > 1), rows) == rows.to_pylist()[1:]


def test_operators_describe_themselves() -> None:
    assert FilterRows("f", pc.field("amount") > 0).describe() == {
        "kind": "filter", "expression": "(amount > 0)",
    }  # fmt: skip
    assert SelectColumns("s", ("amount",)).describe() == {"kind": "select", "columns": ["amount"]}
    described = FilterRows("f", with_fee).describe()
    assert described == {"kind": "filter", "function": describe_function(with_fee)}
    assert MapBatches("m", with_fee).describe()["function"] == describe_function(with_fee)


def test_a_function_is_known_by_name_and_source() -> None:
    def variant(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    first = describe_function(variant)

    def variant(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(1)

    second = describe_function(variant)
    assert first["name"] == second["name"]
    assert first["name"].endswith("<locals>.variant")
    assert len(first["source_sha256"]) == 64
    assert first != second


def test_a_function_without_source_is_known_by_its_name() -> None:
    assert describe_function(len) == {"name": "builtins.len", "source_sha256": None}
    partial = functools.partial(with_fee)
    assert describe_function(partial)["source_sha256"] is None


def test_a_function_whose_file_was_changed_since_is_described_by_its_name(tmp_path) -> None:
    """Its text is looked up by line number, and there may be anything by now."""
    file = tmp_path / "program.py"
    source = "\n\ndef double(batch):\n    return batch\n"
    file.write_text(source)
    names: dict = {"__name__": "program"}
    exec(compile(source, str(file), "exec"), names)
    file.write_text("\n\n(not closed\n\n")
    described = describe_function(names["double"])
    assert described == {"name": "program.double", "source_sha256": None}
