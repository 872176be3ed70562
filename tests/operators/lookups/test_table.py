"""The lookup in a table: what it emits, and what of a table is refused."""

from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.lookups.columns import LookupColumns, LookupHow
from laminar_core.operators.lookups.table import LookupRows, Matches, TableLookup
from laminar_core.protocol.types import CheckpointId
from laminar_core.testing.lookup_jobs import MemoryTable
from tests.operators.joins.join_histories import context

TABLE = pa.table({"code": ["EUR", "USD", None], "rate": [1.0, 1.1, 9.0]})
ROWS = pa.record_batch(
    {"n": [1, 2, 3, 4, 5], "currency": pa.array(["USD", None, "X", "EUR", "USD"])}
)


def spec(table: pa.Table = TABLE, how: LookupHow = "left", matches: Matches = "one") -> LookupRows:
    columns = LookupColumns(("currency",), ("code",), how, ("rate",), "_right")
    return LookupRows("rates", MemoryTable(table), columns, matches)


def opened(of: LookupRows, rows: pa.RecordBatch = ROWS) -> TableLookup:
    return of.open(context(), rows.schema)


def emitted(of: LookupRows, rows: pa.RecordBatch = ROWS) -> list[tuple]:
    return [
        (row["n"], row["rate"])
        for batch in opened(of, rows).process(rows)
        for row in batch.to_pylist()
    ]


def test_rows_keep_their_order_and_get_what_the_table_has() -> None:
    assert emitted(spec()) == [(1, 1.1), (2, None), (3, None), (4, 1.0), (5, 1.1)]
    assert emitted(spec(how="inner")) == [(1, 1.1), (4, 1.0), (5, 1.1)]
    assert emitted(spec(), ROWS.slice(0, 0)) == []
    assert emitted(spec(TABLE.slice(0, 0), "inner")) == []
    encoded = ROWS.set_column(1, "currency", ROWS.column(1).dictionary_encode())
    assert emitted(spec(), encoded) == emitted(spec())
    (result,) = opened(spec(), encoded).process(encoded)
    assert result.schema == spec().output_schema(encoded.schema)


def test_several_rows_of_a_key_are_refused_unless_all_are_wanted() -> None:
    twice = pa.concat_tables([TABLE, TABLE.slice(1, 1)])
    with pytest.raises(DataError, match="several rows with the key 'USD': remove") as caught:
        opened(spec(twice))
    assert caught.value.code is ErrorCode.BAD_ROW
    both = [(1, 1.1), (1, 1.1), (2, None), (3, None), (4, 1.0), (5, 1.1), (5, 1.1)]
    assert emitted(spec(twice, matches="all")) == both
    assert emitted(spec(matches="all")) == emitted(spec())


def test_many_matches_leave_in_pieces() -> None:
    many = pa.table({"code": ["USD"] * 50_000, "rate": [1.0] * 50_000})
    table = MemoryTable(many, batch_rows=20_000)
    of = replace(spec(matches="all"), table=table)
    sizes = [len(batch) for batch in opened(of).process(ROWS)]
    assert sum(sizes) == 100_003
    assert max(sizes) <= OUTPUT_ROWS_MAX


def test_a_table_that_is_too_large_is_refused_while_it_is_read() -> None:
    table = MemoryTable(pa.table({"code": map(str, range(900)), "rate": [1.0] * 900}), 8_000)
    with pytest.raises(DataError) as caught:
        opened(replace(spec(), table=table))
    assert caught.value.code is ErrorCode.TOO_MANY_ROWS
    assert "its first " in str(caught.value)
    assert "may take 8,000: choose fewer columns" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_has_nothing_to_save_and_its_description_has_the_table() -> None:
    subtask = opened(spec())
    assert subtask.held_row_count == 2
    snapshot = subtask.snapshot(CheckpointId(1))()
    assert (list(snapshot.tables), snapshot.properties) == ([], {})
    assert spec().describe()["table"] == {"rows": 3}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="matches is one or all, not first"):
        spec(matches="first")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="'currency' is int64 on the left"):
        spec().output_schema(pa.schema([("currency", pa.int64())]))
