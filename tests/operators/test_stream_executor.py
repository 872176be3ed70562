"""Queries and their state: the round trips, and what is refused.

The names of the tests are those of the document; where ERRATA corrects it, the test says how.
"""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.operators import agg
from laminar_core.operators.executor_codec import decode_parts
from laminar_core.operators.queries import AggregateQuery
from laminar_core.operators.stream_executor import (
    StreamExecutor,
)
from laminar_core.protocol.types import WATERMARK_END_US
from tests.operators.executor_states import (
    RUNNING,
    SCHEMA,
    SECOND,
    WINDOWED,
    at,
    fed,
    restored,
    rows_of,
)

NAN = float("nan")


# --- the document's tests -----------------------------------------------------------------------


def test_checkpoint_roundtrip_single_group_sum() -> None:
    executor = StreamExecutor([RUNNING], SCHEMA)
    assert fed(executor, [("a", 5, 0), ("a", 7, 0)]) == [("totals", "a", 12, 6.0)]
    again = restored(executor.checkpoint_state(), RUNNING)
    assert fed(again, [("a", 1, 0)]) == fed(executor, [("a", 1, 0)])
    assert fed(again, [("a", None, 0)]) == [("totals", "a", 13, 13 / 3)]


def test_checkpoint_roundtrip_multi_group_avg() -> None:
    """Goal: an average goes on as an average, not as the average of averages."""
    executor = StreamExecutor([RUNNING], SCHEMA)
    fed(executor, [(key, value, 0) for value in range(9) for key in ("a", "b", None)])
    again = restored(executor.checkpoint_state(), RUNNING)
    assert sorted(fed(again, [("b", 100, 0), ("a", 0, 0), ("new", 4, 0)])) == [
        ("totals", "a", 36, 3.6),
        ("totals", "b", 136, 13.6),
        ("totals", "new", 4, 4.0),
    ]


def test_checkpoint_roundtrip_eowc_tumbling_window() -> None:
    executor = StreamExecutor([WINDOWED], SCHEMA)
    assert fed(executor, [("a", 5, 1), ("b", 7, 2), ("a", 1, 11)]) == []
    again = restored(executor.checkpoint_state(), WINDOWED)
    fed(again, [("a", 2, 3)])
    assert sorted(rows_of(again.on_watermark(10 * SECOND))) == [
        ("minutes", "a", at(0), at(10), 2, 7),
        ("minutes", "b", at(0), at(10), 1, 7),
    ]


def test_checkpoint_roundtrip_eowc_multiple_windows() -> None:
    """Goal: what has closed stays closed: no window fires twice, no late row gets in."""
    executor = StreamExecutor([WINDOWED], SCHEMA)
    fed(executor, [("a", 5, 1), ("a", 7, 12), ("a", 9, 25)])
    assert rows_of(executor.on_watermark(12 * SECOND)) == [("minutes", "a", at(0), at(10), 1, 5)]
    again = restored(executor.checkpoint_state(), WINDOWED)
    fed(again, [("a", 1_000, 2), ("a", 1, 13)])
    assert rows_of(again.on_watermark(12 * SECOND)) == []
    assert rows_of(again.on_watermark(WATERMARK_END_US)) == [
        ("minutes", "a", at(10), at(20), 2, 8),
        ("minutes", "a", at(20), at(30), 1, 9),
    ]
    [part] = decode_parts(again.checkpoint_state() or b"")
    assert (part.rows, part.facts["late_row_count"]) == (None, 1)


def test_restore_missing_key_is_noop() -> None:
    """ERRATA 1.3: None is the recorded word that there was no state. That a checkpoint has no
    record of an operator at all is damage, and found in its manifest:
    ``tests/records/test_manifest.py::test_a_missing_subtask_is_named``.
    """
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    assert executor.restore_state(None) == 0
    assert not executor.last_restore.sources_must_rewind
    assert fed(executor, [("a", 1, 0)]) == [("totals", "a", 1, 1.0)]


def test_restore_fingerprint_mismatch_skips_query() -> None:
    """ERRATA 1.1: refused; skipped only on request, and then with everything else and the offsets,
    because queries share their sources.
    """
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    fed(executor, [("a", 1, 0)])
    state = executor.checkpoint_state()
    changed = replace(RUNNING, aggregates=(agg.count(), agg.avg("v")))
    other = StreamExecutor([changed, WINDOWED], SCHEMA)
    with pytest.raises(IncompatibleStateError, match="totals: changed, aggregates was") as caught:
        other.restore_state(state)
    assert caught.value.code is ErrorCode.OPERATORS_CHANGED
    assert other.restore_state(state, on_changed="reset") == 0
    report = other.last_restore
    assert (report.restored, report.sources_must_rewind) == ((), True)
    assert report.mapping.mapped == ("minutes",)
    assert [query_id for query_id, _ in report.mapping.changed] == ["totals"]
    assert fed(other, [("a", 1, 0)]) == [("totals", "a", 1, 1.0)]
    assert rows_of(other.on_watermark(10 * SECOND)) == [("minutes", "a", at(0), at(10), 1, 1)]


def test_restore_corrupt_bytes_returns_error() -> None:
    """ERRATA 1.2: never a fresh start. Every single byte, and every length, is tried."""
    executor = StreamExecutor([replace(RUNNING, aggregates=(agg.count(),))], SCHEMA)
    fed(executor, [("a", 1, 0)])
    state = executor.checkpoint_state() or b""
    damaged = [state[:length] for length in range(len(state))] + [state + b"\0", state * 2]
    for position in range(len(state)):
        flipped = bytearray(state)
        flipped[position] ^= 1 << position % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        with pytest.raises(CorruptCheckpointError) as caught:
            decode_parts(data)
        assert caught.value.code is ErrorCode.STATE_UNREADABLE
    fresh = StreamExecutor([RUNNING], SCHEMA)
    with pytest.raises(CorruptCheckpointError):
        fresh.restore_state(damaged[-1], on_changed="reset")


def test_checkpoint_empty_state_returns_none() -> None:
    """None only if nothing has come at all: event time alone is state (ERRATA 1.12)."""
    assert StreamExecutor([], SCHEMA).checkpoint_state() is None
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    assert executor.checkpoint_state() is None
    fed(executor, [])
    assert executor.checkpoint_state() is None
    list(executor.on_watermark(10 * SECOND))
    state = executor.checkpoint_state()
    assert state is not None
    again = restored(state, RUNNING, WINDOWED)
    assert fed(again, [("a", 1, 2)]) == [("totals", "a", 1, 1.0)]
    assert rows_of(again.on_watermark(WATERMARK_END_US)) == [], "the row was late"


TYPES = {
    "int8": pa.array([1, None, -128], pa.int8()),
    "int16": pa.array([1, None, -(2**15)], pa.int16()),
    "int32": pa.array([1, None, -(2**31)], pa.int32()),
    "int64": pa.array([1, None, -(2**63)], pa.int64()),
    "uint8": pa.array([1, None, 255], pa.uint8()),
    "uint16": pa.array([1, None, 2**16 - 1], pa.uint16()),
    "uint32": pa.array([1, None, 2**32 - 1], pa.uint32()),
    "uint64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "float16": pa.array([np.float16(1.5), None, np.float16(NAN)], pa.float16()),
    "float32": pa.array([1.5, None, NAN], pa.float32()),
    "float64": pa.array([-0.0, None, NAN], pa.float64()),
    "decimal32": pa.array([Decimal(1), None, Decimal("-2.25")], pa.decimal32(9, 2)),
    "decimal64": pa.array([Decimal(1), None, Decimal("-2.25")], pa.decimal64(12, 2)),
    "decimal128": pa.array([1, None, -2]).cast(pa.decimal128(38, 10)),
    "decimal256": pa.array([1, None, -2]).cast(pa.decimal256(76, 10)),
    "bool": pa.array([True, None, False]),
    "string": pa.array(["", None, "é"]),
    "large_string": pa.array(["", None, "é"], pa.large_string()),
    "binary": pa.array([b"", None, b"\xff"]),
    "large_binary": pa.array([b"", None, b"\xff"], pa.large_binary()),
    "fixed_size_binary": pa.array([b"ab", None, b"\xff\0"], pa.binary(2)),
    "date32": pa.array([0, None, -1], pa.int32()).cast(pa.date32()),
    "date64": pa.array([0, None, -86_400_000], pa.int64()).view(pa.date64()),
    "time32": pa.array([0, None, 1], pa.int32()).cast(pa.time32("ms")),
    "time64": pa.array([0, None, 1], pa.int64()).cast(pa.time64("ns")),
    "timestamp s": pa.array([0, None, -1], pa.timestamp("s")),
    "timestamp ns zone": pa.array([0, None, -1], pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([0, None, -1], pa.duration("us")),
    "dictionary": pa.array(["x", None, "y"]).dictionary_encode(),
    "null": pa.nulls(3),
}
ANY_TYPE = (
    agg.min("v", name="low"), agg.max("v", name="high"), agg.first("v", by="n", name="one"),
    agg.last("v", by="n", name="two"), agg.count_distinct("v", name="kinds"),
    agg.approx_count_distinct("v", name="about"), agg.count("v", name="known"),
)  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_scalar_value_roundtrip_all_types(name: str) -> None:
    """Goal: every scalar type as value, and as key if it can be one, with nulls and NaN."""
    values = TYPES[name]
    rows = pa.table({"v": values, "n": [1, 2, 3], "g": ["a", "a", "a"]}).combine_chunks()
    queries = [AggregateQuery("values", ("g",), ANY_TYPE)]
    if not pa.types.is_floating(values.type):
        queries.append(AggregateQuery("keys", ("v",), (agg.sum("n"), agg.min("v"))))
    [batch] = rows.to_batches()
    executor = StreamExecutor(queries, batch.schema)
    before = rows_of(executor.process(batch))
    known = len(values.drop_null())
    assert before[0][-3:] == (known, known, known)
    again = StreamExecutor(queries, batch.schema)
    assert again.restore_state(executor.checkpoint_state()) == len(queries)
    results = [rows_of(of.process(batch.slice(1, 1))) for of in (executor, again)]
    assert str(results[0]) == str(results[1])
    types = [[r.batch.schema for r in of.process(batch)] for of in (executor, again)]
    assert types[0] == types[1]
    if not pa.types.is_floating(values.type):
        assert len(before) == 1 + (3 if known else 1)


@pytest.mark.parametrize("data_type", [pa.list_(pa.int8()), pa.month_day_nano_interval()], ids=str)
def test_types_without_order_are_refused_with_those_that_work(data_type: pa.DataType) -> None:
    schema = pa.schema([("v", data_type), ("g", pa.string())])
    with pytest.raises(ConfigurationError, match=r"min\(v\) takes numbers, booleans, strings"):
        StreamExecutor([AggregateQuery("q", ("g",), (agg.min("v"),))], schema)
    with pytest.raises(ConfigurationError, match="cannot be a key"):
        StreamExecutor([AggregateQuery("q", ("v",), (agg.count(),))], schema)


def test_floating_point_keys_have_one_zero_and_one_nan() -> None:
    schema = pa.schema([("x", pa.float64())])
    query = AggregateQuery("q", ("x",), (agg.count(),))
    executor = StreamExecutor([query], schema)
    executor.process(pa.record_batch([pa.array([0.0, NAN])], schema=schema))
    (result,) = executor.process(pa.record_batch([pa.array([-0.0, -NAN, None])], schema=schema))
    found = {str(row["x"]): row["count"] for row in result.batch.to_pylist()}
    assert found == {"0.0": 2, "nan": 2, "None": 1}
