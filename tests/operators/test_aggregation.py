"""The two halves of a windowed aggregation: schemas, errors, edges, what a snapshot says."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import VERSIONS_KEY
from laminar_core.codec.key_groups import partition
from laminar_core.errors import (
    ConfigurationError,
    DataError,
    ErrorCode,
    IncompatibleStateError,
    ProtocolError,
)
from laminar_core.operators import agg
from laminar_core.operators.aggregation import (
    OUTPUT_ROWS_MAX,
    PartialAggregate,
    WindowAggregate,
    WindowAggregator,
)
from laminar_core.operators.base import PendingSnapshot, Snapshot, SubtaskContext, one_table
from laminar_core.operators.windows import sliding, tumbling
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.state import panes, window_state

INPUT = pa.schema([("merchant", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
AGGREGATES = (agg.count(), agg.sum("v", name="total"), agg.avg("v"))
WINDOW = tumbling("10 seconds")
SECOND = 1_000_000
PARTIAL = PartialAggregate("partial", ("merchant",), "ts", WINDOW, AGGREGATES)
MERGING = WindowAggregate("totals", ("merchant",), WINDOW, AGGREGATES)


def at(subtask_index: int = 0, parallelism: int = 1) -> SubtaskContext:
    return SubtaskContext("totals", subtask_index, parallelism, 128, Generation(1))


def rows(*rows: tuple[str | None, int, int | None]) -> pa.RecordBatch:
    """(merchant, seconds, v)."""
    merchants, seconds, values = zip(*rows, strict=True) if rows else ((), (), ())
    times = pa.array([s * SECOND for s in seconds], pa.int64()).cast(INPUT.field("ts").type)
    return pa.record_batch([merchants, times, pa.array(values, pa.int64())], schema=INPUT)


def combined(batch: pa.RecordBatch, spec: PartialAggregate = PARTIAL) -> pa.RecordBatch:
    [partial] = spec.open(at(), batch.schema).process(batch)
    assert partial.schema == spec.output_schema(batch.schema)
    return partial


def merger(
    spec: WindowAggregate = MERGING, context: SubtaskContext | None = None
) -> WindowAggregator:
    return spec.open(context or at(), PARTIAL.output_schema(INPUT))


def fed(*batches: pa.RecordBatch) -> WindowAggregator:
    subtask = merger()
    for batch in batches:
        assert list(subtask.process(combined(batch))) == []
    return subtask


def results(subtask: WindowAggregator, watermark_s: int) -> list[dict]:
    return [r for batch in subtask.on_watermark(watermark_s * SECOND) for r in batch.to_pylist()]


def test_a_batch_shrinks_to_one_row_per_key_and_window() -> None:
    partial = combined(rows(("a", 1, 5), ("b", 2, 7), ("a", 3, None), ("a", 12, 1)))
    assert [tuple(row.values()) for row in partial.to_pylist()] == [
        ("a", datetime(1970, 1, 1, 0, 0, 0, tzinfo=UTC), 2, 5, 1),
        ("b", datetime(1970, 1, 1, 0, 0, 0, tzinfo=UTC), 1, 7, 1),
        ("a", datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC), 1, 1, 1),
    ]
    assert partial.schema.names == ["merchant", "window_start", "count(*)", "sum(v)", "count(v)"]


def test_encoded_keys_are_sent_plain() -> None:
    batch = rows(("a", 1, 5), (None, 2, 7), ("a", 3, 1))
    encoded = batch.set_column(0, "merchant", batch.column(0).dictionary_encode())
    assert combined(encoded).equals(combined(batch))


def test_windows_end_to_end() -> None:
    subtask = fed(rows(("a", 1, 5), ("b", 2, 7)), rows(("a", 3, 2), ("a", 12, 1)))
    assert results(subtask, 9) == []
    assert results(subtask, 10) == [
        {
            "merchant": key,
            "window_start": datetime(1970, 1, 1, 0, 0, 0, tzinfo=UTC),
            "window_end": datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
            "count": count,
            "total": 7,
            "avg_v": average,
        }
        for key, count, average in [("a", 2, 3.5), ("b", 1, 7.0)]
    ]
    assert [r["count"] for r in results(subtask, WATERMARK_END_US // SECOND)] == [1]


def test_without_keys_there_is_one_result_per_window() -> None:
    spec = replace(PARTIAL, keys=())
    for batch in (rows(("a", 1, 5), ("b", 2, 7)), rows(("a", 1, 5), ("b", 12, 7))):
        partial = combined(batch, spec)
        subtask = replace(MERGING, keys=()).open(at(), partial.schema)
        list(subtask.process(partial))
        assert sum(r["total"] for r in results(subtask, 20)) == 12


def test_results_come_in_batches_of_bounded_size() -> None:
    keys = pa.array([str(i) for i in range(OUTPUT_ROWS_MAX + 1)])
    times = pa.repeat(pa.scalar(0, INPUT.field("ts").type), len(keys))
    subtask = fed(pa.record_batch([keys, times, pa.array(range(len(keys)))], schema=INPUT))
    sizes = [batch.num_rows for batch in subtask.on_watermark(WATERMARK_END_US)]
    assert max(sizes) <= OUTPUT_ROWS_MAX
    assert sum(sizes) == OUTPUT_ROWS_MAX + 1


def test_empty_batches_are_harmless() -> None:
    empty = rows()
    assert list(PARTIAL.open(at(), INPUT).process(empty)) == []
    subtask = fed(rows(("a", 1, 5)))
    list(subtask.process(combined(rows(("a", 1, 5))).slice(0, 0)))
    assert [r["count"] for r in results(subtask, 10)] == [1]


def test_rows_without_event_time_stop_the_job() -> None:
    batch = rows(("a", 1, 5), ("a", 2, 5))
    batch = batch.set_column(1, INPUT.field("ts"), pa.array([None, 1], INPUT.field("ts").type))
    with pytest.raises(DataError, match="1 of 2 rows have no event time in 'ts'") as caught:
        combined(batch)
    assert caught.value.code is ErrorCode.NULL_EVENT_TIME


@pytest.mark.parametrize("values", [[(2**62, 2**62)], [(2**62,), (2**62,)]])
def test_an_overflow_is_found_in_a_batch_and_between_batches(values: list) -> None:
    with pytest.raises(DataError, match=r"sum\(v\) leaves 64 bits") as caught:
        results(fed(*(rows(*(("a", 1, v) for v in batch)) for batch in values)), 10)
    assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"keys": ("shop",)}, ErrorCode.WRONG_SCHEMA, "no column 'shop'; there are: merchant, ts"),
        ({"time_column": "at"}, ErrorCode.WRONG_SCHEMA, "no column 'at'"),
        ({"time_column": "merchant"}, ErrorCode.UNSUPPORTED_TYPE, "must be a timestamp"),
        ({"aggregates": (agg.sum("w"),)}, ErrorCode.WRONG_SCHEMA, "no column 'w'"),
        ({"aggregates": (agg.sum("merchant"),)}, ErrorCode.UNSUPPORTED_TYPE, "takes integers"),
    ],
)
def test_a_partial_that_does_not_fit_is_refused(
    change: dict, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        replace(PARTIAL, **change).output_schema(INPUT)
    assert caught.value.code is code


def test_a_key_of_lists_is_refused() -> None:
    schema = INPUT.append(pa.field("prices", pa.list_(pa.float64())))
    with pytest.raises(ConfigurationError, match="cannot be a key") as caught:
        replace(PARTIAL, keys=("prices",)).output_schema(schema)
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE


@pytest.mark.parametrize("name", ["window_start", "count(*)", "sum(v)", "key_group"])
def test_a_key_that_is_called_like_a_column_of_state_is_refused(name: str) -> None:
    schema = INPUT.append(pa.field(name, pa.string()))
    with pytest.raises(ConfigurationError, match="rename the key") as caught:
        replace(PARTIAL, keys=(name,)).output_schema(schema)
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_a_value_may_be_called_like_a_column_of_state() -> None:
    batch = rows(("a", 1, 5), ("a", 12, 7)).rename_columns(["merchant", "ts", "window_start"])
    partial = combined(batch, replace(PARTIAL, aggregates=(agg.sum("window_start"),)))
    assert partial.column("sum(window_start)").to_pylist() == [5, 7]


@pytest.mark.parametrize(
    "aggregates",
    [
        (agg.sum("v"), agg.sum("v")),
        (agg.sum("v", name="merchant"),),
        (agg.avg("v", name="window_end"),),
    ],
)
def test_results_of_one_name_are_refused_with_advice(aggregates: tuple) -> None:
    schema = replace(PARTIAL, aggregates=aggregates).output_schema(INPUT)
    with pytest.raises(ConfigurationError, match='name="total"') as caught:
        replace(MERGING, aggregates=aggregates).output_schema(schema)
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_the_merge_side_refuses_rows_that_nobody_combined() -> None:
    with pytest.raises(ConfigurationError, match="no column 'window_start'") as caught:
        MERGING.output_schema(INPUT)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


def test_descriptions_are_json_and_tell_every_change() -> None:
    changed = [
        replace(MERGING, keys=("ts",)),
        replace(MERGING, window=tumbling("1 minute")),
        replace(MERGING, window=sliding("10 seconds", "5 seconds")),
        replace(MERGING, aggregates=(agg.count(),)),
        replace(MERGING, allowed_lateness_us=1),
        replace(PARTIAL, time_column="v"),
        PARTIAL,
        MERGING,
    ]
    described = {json.dumps(spec.describe(), sort_keys=True) for spec in changed}
    assert len(described) == len(changed)
    assert replace(MERGING, operator_id="other").describe() == MERGING.describe()


def test_a_snapshot_says_what_the_state_is() -> None:
    subtask = fed(rows(("a", 15, 5)))
    results(subtask, 10)
    list(subtask.process(combined(rows(("a", 1, 5), ("a", 2, 5)))))
    snapshot = subtask.snapshot(CheckpointId(1))()
    assert snapshot.properties == {
        "watermark_us": 10 * SECOND,
        "late_row_count": 2,
        "key_groups": [0, 128],
        "max_parallelism": 128,
        "allowed_lateness_us": 0,
        "window": WINDOW.describe(),
    }
    (table,) = snapshot.rows()
    assert table.schema.names == [
        "key_group", "merchant", "window_start", "count(*)", "sum(v)", "count(v)",
    ]  # fmt: skip


def test_no_state_is_no_table() -> None:
    snapshot = merger().snapshot(CheckpointId(1))()
    assert list(snapshot.tables) == []
    assert snapshot.properties["watermark_us"] is None
    successor = merger()
    successor.restore([snapshot])
    assert results(successor, 10) == []


def snapshots_of_two() -> list[Snapshot]:
    """Two subtasks, a hundred keys, watermark 5 s and 8 s, 1 and 2 late rows."""
    subtasks = [merger(context=at(i, 2)) for i in range(2)]
    for partial in (combined(rows(*((str(i), 15, i) for i in range(100)))),):
        for i, part in partition(partial, ["merchant"], 128, 2):
            list(subtasks[i].process(part))
    taken = []
    for subtask, watermark_s, late in zip(subtasks, (5, 8), (1, 2), strict=True):
        results(subtask, watermark_s)
        list(subtask.process(combined(rows(*[("a", -20, 1)] * late))))
        taken.append(subtask.snapshot(CheckpointId(1))())
    return taken


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_state_is_shared_out_by_key_group_and_nothing_counts_twice(parallelism: int) -> None:
    successors = [merger(context=at(i, parallelism)) for i in range(parallelism)]
    for i, successor in enumerate(successors):
        overlapping = snapshots_of_two()
        if parallelism > 1:
            overlapping = [
                overlapping[j] for j in ([0], [0, 1], [1])[i if parallelism == 3 else 2 * i]
            ]
        successor.restore(overlapping)
    assert sum(successor.late_row_count for successor in successors) == 3
    totals = [r["total"] for successor in successors for r in results(successor, 20)]
    assert sorted(totals) == list(range(100))


def test_the_restored_watermark_is_the_least() -> None:
    successor = merger()
    successor.restore(snapshots_of_two())
    assert successor.snapshot(CheckpointId(2))().properties["watermark_us"] == 5 * SECOND


def test_a_watermark_that_one_subtask_does_not_know_is_unknown() -> None:
    known, unknown = snapshots_of_two()
    unknown = replace(unknown, properties={**unknown.properties, "watermark_us": None})
    successor = merger()
    successor.restore([known, unknown])
    assert successor.snapshot(CheckpointId(2))().properties["watermark_us"] is None


@pytest.mark.parametrize("chosen", [[], [0], [0, 0, 1], [0, 1, 1]])
def test_state_that_is_missing_or_given_twice_is_never_restored(chosen: list[int]) -> None:
    snapshots = snapshots_of_two()
    with pytest.raises(ProtocolError, match="subtask 0 of 'totals' owns key groups") as caught:
        merger().restore([snapshots[i] for i in chosen])
    assert caught.value.code is ErrorCode.ILLEGAL_EVENT


@pytest.mark.parametrize(
    ("spec", "context", "reason"),
    [
        (replace(MERGING, window=tumbling("1 minute")), at(), "its window was"),
        (
            replace(MERGING, allowed_lateness_us=7),
            at(),
            "its allowed_lateness_us was 0 and is now 7",
        ),
        (MERGING, replace(at(), max_parallelism=64), "its max_parallelism was 128 and is now 64"),
        (
            replace(MERGING, aggregates=(agg.count(),)),
            at(),
            "the columns of its state have changed",
        ),
    ],
)
def test_state_of_another_aggregation_is_refused(
    spec: WindowAggregate, context: SubtaskContext, reason: str
) -> None:
    snapshot = fed(rows(("a", 1, 5))).snapshot(CheckpointId(1))()
    with pytest.raises(IncompatibleStateError, match=reason) as caught:
        merger(spec, context).restore([snapshot])
    assert caught.value.code is ErrorCode.OPERATORS_CHANGED
    assert "operator 'totals' does not fit the checkpoint" in str(caught.value)
    assert "start anew with --reset-state totals" in str(caught.value)


def test_state_of_another_version_of_a_function_is_refused_by_name() -> None:
    snapshot = fed(rows(("a", 1, 5))).snapshot(CheckpointId(1))()
    [table] = snapshot.rows()
    newer = table.replace_schema_metadata({VERSIONS_KEY: b'{"sum(v)": 2}'})
    with pytest.raises(IncompatibleStateError, match=r"sum\(v\) is of version 2, and this Laminar"):
        merger().restore([replace(snapshot, tables=one_table([newer]))])


def sparse(*batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Partial results behind a batch in which no key comes twice."""
    subtask = PARTIAL.open(at(), INPUT)
    [_] = subtask.process(rows(*((str(n), 1, n) for n in range(10))))
    return [partial for batch in batches for partial in subtask.process(batch)]


def test_rows_with_keys_of_their_own_are_not_combined() -> None:
    batch = rows(("a", 1, 5), ("a", 2, 7), ("a", 12, 1))
    encoded = batch.set_column(0, "merchant", batch.column(0).dictionary_encode())
    [plain, of_encoded] = sparse(batch, encoded)
    assert plain.equals(of_encoded)
    assert plain.schema == PARTIAL.output_schema(INPUT)
    assert [tuple(row.values()) for row in plain.to_pylist()] == [
        ("a", datetime(1970, 1, 1, 0, 0, 0, tzinfo=UTC), 1, 5, 1),
        ("a", datetime(1970, 1, 1, 0, 0, 0, tzinfo=UTC), 1, 7, 1),
        ("a", datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC), 1, 1, 1),
    ]
    nulls = rows(("a", 1, None), ("a", 2, 3))
    assert [partial.num_rows for partial in sparse(nulls)] == [1], "nulls are combined"


TWICE = rows(("a", 1, 5), ("a", 2, 7), ("b", 2, 1))
"""A key that comes twice in a batch that is not combined."""


@pytest.mark.parametrize("more", [(), (rows(("a", 3, 0)),)], ids=["alone", "with another"])
@pytest.mark.parametrize("cut", [WindowAggregator.snapshot, WindowAggregator.snapshot_changes])
def test_a_cut_has_one_row_for_a_key_that_came_twice_in_a_batch(
    cut: Callable[[WindowAggregator, CheckpointId], PendingSnapshot],
    more: tuple[pa.RecordBatch, ...],
) -> None:
    subtask = merger()
    for partial in sparse(TWICE, *more):
        assert list(subtask.process(partial)) == []
    snapshot = cut(subtask, CheckpointId(1))()
    tables = [table.rows for table in snapshot.tables]
    keys = [key for table in tables for key in table.column("merchant").to_pylist()]
    assert sorted(keys) == ["a", "b"]
    again = merger()
    again.restore([Snapshot.of(tables, snapshot.properties)])
    for state in (subtask, again):
        found = [(r["merchant"], r["count"], r["total"]) for r in results(state, 10)]
        assert sorted(found) == [("a", 2 + len(more), 12), ("b", 1, 1)]


def test_every_row_of_a_key_that_came_twice_is_counted_if_it_is_late() -> None:
    subtask = merger()
    assert results(subtask, 20) == []
    for partial in sparse(TWICE):
        assert list(subtask.process(partial)) == []
    assert subtask.late_row_count == 3


def test_forms_of_a_key_are_one_key_also_where_rows_are_not_combined() -> None:
    def batch(*keys: float | None) -> pa.RecordBatch:
        times = pa.array([SECOND] * len(keys), pa.int64()).cast(INPUT.field("ts").type)
        return pa.record_batch({"k": pa.array(keys, pa.float64()), "ts": times})

    spec = PartialAggregate("partial", ("k",), "ts", WINDOW, (agg.count(),))
    subtask = spec.open(at(), batch().schema)
    [_] = subtask.process(batch(*map(float, range(1, 10))))
    [partial] = subtask.process(batch(0.0, -0.0, math.nan, -math.nan, None, None))
    assert partial.num_rows == 6
    assert {part.num_rows for _, part in partition(partial, ("k",), 128, 16)} == {2}
    merging = WindowAggregate("totals", ("k",), WINDOW, (agg.count(),)).open(at(), partial.schema)
    list(merging.process(partial))
    assert [(str(r["k"]), r["count"]) for r in results(merging, 10)] == [
        ("0.0", 2),
        ("nan", 2),
        ("None", 2),
    ]


def test_a_large_window_without_keys_has_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: ranges of key groups without rows are none of its results, nor of its checkpoint."""
    for module in (panes, window_state):
        monkeypatch.setattr(module, "TABLE_BYTES_MAX", 16)
    aggregates = (agg.count_distinct("v"),)
    partial = combined(
        rows(*((None, 1, n) for n in range(100))),
        replace(PARTIAL, keys=(), aggregates=aggregates),
    )
    subtask = replace(MERGING, keys=(), aggregates=aggregates).open(at(), partial.schema)
    list(subtask.process(partial))
    snapshot = subtask.snapshot(CheckpointId(1))()
    assert sum(table.rows.num_rows for table in snapshot.tables) == 1
    fired = [row for batch in subtask.on_watermark(WATERMARK_END_US) for row in batch.to_pylist()]
    assert [row["count_distinct_v"] for row in fired] == [100]


@pytest.mark.parametrize("data_type", [pa.decimal32(7, 2), pa.decimal64(15, 2)], ids=str)
def test_bundles_take_dictionaries_of_short_decimals(data_type: pa.DataType) -> None:
    values = pa.array([Decimal(1), Decimal(2)], data_type)
    count = 8_192
    batch = pa.record_batch(
        {
            "merchant": pa.DictionaryArray.from_arrays(pa.array([0, 1] * (count // 2)), values),
            "ts": pa.repeat(pa.scalar(1, INPUT.field("ts").type), count),
            "v": pa.repeat(1, count),
        }
    )
    spec = replace(PARTIAL, bundles=True, aggregates=(agg.sum("v"),))
    subtask = spec.open(at(), batch.schema)
    found = [*subtask.process(batch), *subtask.finish_bundle()]
    assert sum(row["sum(v)"] for part in found for row in part.to_pylist()) == count
