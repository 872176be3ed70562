"""The two halves of session windows: schemas, errors, every aggregate, what a snapshot says."""

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import VERSIONS_KEY
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators import agg
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import Snapshot, StateTable, SubtaskContext, output_watermark_of
from laminar_core.operators.sessions import (
    SESSIONS,
    PartialSessions,
    SessionAggregator,
    Sessions,
)
from laminar_core.operators.windows import tumbling
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation

SECOND = 1_000_000
GAP = 10 * SECOND
INPUT = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
AGGREGATES = (agg.count(), agg.sum("v", name="total"))
PARTIAL = PartialSessions("visits-combine", ("user",), "ts", GAP, AGGREGATES)
MERGING = Sessions("visits", ("user",), GAP, AGGREGATES)


def at(subtask_index: int = 0, parallelism: int = 1) -> SubtaskContext:
    return SubtaskContext("visits", subtask_index, parallelism, 128, Generation(1))


def rows(*rows: tuple[str | None, int, int | None]) -> pa.RecordBatch:
    """(user, seconds, v)."""
    lines = [
        {"user": user, "ts": datetime.fromtimestamp(second, UTC), "v": v}
        for user, second, v in rows
    ]
    return pa.RecordBatch.from_pylist(lines, schema=INPUT)


def combined(
    batch: pa.RecordBatch, watermark_s: int | None = -1_000, spec: PartialSessions = PARTIAL
) -> pa.RecordBatch:
    combiner = spec.open(at(), batch.schema)
    if watermark_s is not None:
        combiner.on_watermark(watermark_s * SECOND)
    [partial] = combiner.process(batch)
    assert partial.schema == spec.output_schema(batch.schema)
    return partial


def merger(spec: Sessions = MERGING, partial: PartialSessions = PARTIAL) -> SessionAggregator:
    return spec.open(at(), partial.output_schema(INPUT))


def results(subtask: SessionAggregator, watermark_s: int) -> list[tuple]:
    batches = list(subtask.on_watermark(watermark_s * SECOND))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_a_batch_becomes_partial_sessions() -> None:
    partial = combined(rows(("a", 20, 1), ("b", 0, 5), ("a", 10, None), ("a", 31, 2)))
    found = sorted(tuple(row.values()) for row in partial.to_pylist())
    assert found == [
        ("a", moment(10), moment(30), 2, 1),
        ("a", moment(31), moment(41), 1, 2),
        ("b", moment(0), moment(10), 1, 5),
    ]
    assert partial.schema.names == ["user", "window_start", "_expires", "count(*)", "sum(v)"]


@pytest.mark.parametrize(("watermark_s", "pieces"), [(None, 4), (13, 4), (11, 3), (10, 2), (-5, 2)])
def test_rows_that_may_be_late_travel_by_themselves(watermark_s: int | None, pieces: int) -> None:
    batch = rows(("a", 10, 1), ("a", 12, 1), ("a", 14, 1), ("a", 14, 1), ("b", 15, 1))
    assert combined(batch, watermark_s).num_rows == pieces


def test_a_session_is_emitted_once_event_time_is_past_its_end() -> None:
    subtask = merger()
    list(subtask.process(combined(rows(("a", 10, 1), ("a", 0, 2)))))
    assert results(subtask, 20) == []
    assert output_watermark_of(subtask, 20 * SECOND) == 20 * SECOND - 1
    list(subtask.process(combined(rows(("a", 20, 3)))))
    assert results(subtask, 31) == [("a", moment(0), moment(30), 3, 6)]
    assert output_watermark_of(subtask, 31 * SECOND) == 31 * SECOND
    assert subtask.row_count == 0
    assert MERGING.output_schema(PARTIAL.output_schema(INPUT)).names == [
        "user", "window_start", "window_end", "count", "total",
    ]  # fmt: skip


def test_a_row_behind_the_watermark_is_late_even_if_its_session_is_open() -> None:
    subtask = merger()
    list(subtask.process(combined(rows(("a", 19, 1)))))
    assert results(subtask, 20) == []
    list(subtask.process(combined(rows(("a", 18, 1), ("a", 20, 1)), 20)))
    assert subtask.late_row_count == 1
    assert results(subtask, 31) == [("a", moment(19), moment(30), 2, 2)]


def test_allowed_lateness_delays_what_is_late_and_what_is_emitted() -> None:
    subtask = merger(replace(MERGING, allowed_lateness_us=5 * SECOND))
    list(subtask.process(combined(rows(("a", 0, 1)))))
    assert results(subtask, 15) == []
    list(subtask.process(combined(rows(("a", 9, 1), ("b", 10, 1)), 15)))
    assert subtask.late_row_count == 1
    assert results(subtask, 16) == [("a", moment(0), moment(10), 1, 1)]
    assert output_watermark_of(subtask, 16 * SECOND) == 11 * SECOND


def test_a_time_column_that_lags_gets_its_watermark_later() -> None:
    combiner = replace(PARTIAL, time_lag_us=SECOND).open(at(), INPUT)
    assert output_watermark_of(combiner, 5 * SECOND) == 4 * SECOND
    combiner.on_watermark(5 * SECOND)
    [partial] = combiner.process(rows(("a", 4, 1), ("a", 5, 1)))
    assert partial.num_rows == 1


class Longest:
    """The longest word."""

    name, state_type, result_type = "longest", pa.string(), pa.string()

    def init(self) -> str:
        return ""

    def accumulate(self, state: str, values: pa.Array) -> str:
        return max(state, *values.drop_null().to_pylist(), key=len)

    def merge(self, left: str, right: str) -> str:
        return max(left, right, key=len)

    def finish(self, state: str) -> str:
        return state


EVERY = (
    agg.count(),
    agg.count("v", name="known"),
    agg.sum("v"),
    agg.avg("v"),
    agg.min("v"),
    agg.max("v"),
    agg.stddev_samp("v"),
    agg.first("v", by="ts"),
    agg.last("v", by="ts"),
    agg.count_distinct("v"),
    agg.approx_count_distinct("v"),
    agg.percentile("v", 0.5),
    agg.approx_percentile("v", 0.9),
    agg.user(Longest(), "user"),
)


def test_every_aggregate_is_that_of_one_window_over_the_session() -> None:
    """Over a restart from changes, and with a row per batch."""
    batch = rows(*(("a", n, None if n % 5 == 0 else n * 7 % 11) for n in range(40)))
    partial, spec = replace(PARTIAL, aggregates=EVERY), replace(MERGING, aggregates=EVERY)
    subtask, changes = merger(spec, partial), []
    for n in (*range(20), 39, *range(38, 19, -1)):
        list(subtask.process(combined(batch.slice(n, 1), spec=partial)))
        if n % 8 == 0:
            changes.append(subtask.snapshot_changes(CheckpointId(n))())
    changes.append(subtask.snapshot_changes(CheckpointId(99))())
    tables = tuple(table for snapshot in changes for table in snapshot.tables)
    restored = merger(spec, partial)
    restored.restore([Snapshot(tables, changes[-1].properties)])
    [session] = restored.on_watermark(WATERMARK_END_US)
    window = PartialAggregate("c", ("user",), "ts", tumbling("40 seconds"), EVERY)
    whole = WindowAggregate("w", ("user",), tumbling("40 seconds"), EVERY)
    [pane] = window.open(at(), INPUT).process(batch)
    by_window = whole.open(at(), pane.schema)
    list(by_window.process(pane))
    [expected] = by_window.on_watermark(WATERMARK_END_US)
    found, wanted = session.to_pylist()[0], expected.to_pylist()[0]
    assert found.pop("window_end") == moment(49)
    wanted.pop("window_end")
    assert found.pop("window_start") == wanted.pop("window_start") == moment(0)
    assert found == pytest.approx(wanted)


def test_a_snapshot_says_what_has_expired_and_which_versions_its_state_has() -> None:
    subtask = merger()
    list(subtask.process(combined(rows(("a", 10, 1)))))
    list(subtask.on_watermark(12 * SECOND))
    snapshot = subtask.snapshot(CheckpointId(1))()
    [table] = snapshot.tables
    assert table.name == SESSIONS
    assert table.rows.schema.equals(MERGING.state_tables(PARTIAL.output_schema(INPUT))[SESSIONS])
    assert VERSIONS_KEY in table.rows.schema.metadata
    assert snapshot.expired_us == {SESSIONS: 12 * SECOND - 1}
    assert snapshot.properties == {
        "watermark_us": 12 * SECOND,
        "late_row_count": 0,
        "key_groups": [0, 128],
    }


def test_state_of_another_aggregation_is_refused() -> None:
    subtask = merger()
    list(subtask.process(combined(rows(("a", 10, 1)))))
    snapshot = subtask.snapshot(CheckpointId(1))()
    [table] = snapshot.tables
    other = StateTable(SESSIONS, table.rows.rename_columns([*table.rows.schema.names[:-1], "x"]))
    with pytest.raises(IncompatibleStateError, match="'visits' does not fit the checkpoint"):
        merger().restore([Snapshot((other,), snapshot.properties)])


def test_a_row_without_event_time_stops_the_job() -> None:
    batch = pa.RecordBatch.from_pylist([{"user": "a", "ts": None, "v": 1}], schema=INPUT)
    with pytest.raises(DataError) as caught:
        combined(batch)
    assert caught.value.code is ErrorCode.NULL_EVENT_TIME


@pytest.mark.parametrize(
    ("spec", "schema", "code"),
    [
        (replace(PARTIAL, time_column="nope"), INPUT, ErrorCode.WRONG_SCHEMA),
        (replace(PARTIAL, time_column="user"), INPUT, ErrorCode.UNSUPPORTED_TYPE),
        (replace(PARTIAL, keys=("x",)), INPUT, ErrorCode.WRONG_SCHEMA),
        (
            replace(PARTIAL, keys=("_expires",)),
            INPUT.append(pa.field("_expires", pa.int64())),
            ErrorCode.INVALID_PIPELINE,
        ),
    ],
)
def test_what_does_not_fit_is_refused_when_the_plan_is_made(spec, schema, code) -> None:
    with pytest.raises(ConfigurationError) as caught:
        spec.output_schema(schema)
    assert caught.value.code is code


def test_gap_lateness_and_the_rule_of_the_table_are_the_meaning_of_the_state() -> None:
    assert MERGING.describe() == {
        "kind": "session-aggregate",
        "keys": ["user"],
        "gap_us": GAP,
        "allowed_lateness_us": 0,
        "aggregates": [dict(aggregate.describe()) for aggregate in AGGREGATES],
        "tables": {"sessions": {"keys": ["user"], "merging": "sessions"}},
    }
    assert PARTIAL.describe()["gap_us"] == GAP


@pytest.mark.parametrize("data_type", [pa.decimal32(7, 2), pa.decimal64(15, 2)], ids=str)
def test_keys_may_be_short_decimals(data_type: pa.DataType) -> None:
    batch = rows(("1", 1, 5), ("2", 2, 7), ("1", 1, 1))
    keys = batch.column("user").cast(data_type)
    decimals = batch.set_column(batch.schema.get_field_index("user"), "user", keys)
    found = PARTIAL.open(at(), decimals.schema).process(decimals)
    assert sum(part.num_rows for part in found) == 2
