"""State that is put together without its operator is what the operator would put together."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import VERSIONS_KEY
from laminar_core.errors import IncompatibleStateError
from laminar_core.operators import agg
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.windows import Window, cumulative, tumbling
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.state.reading import (
    accumulator_of,
    finished_window_us,
    key_columns,
    merged_rows,
    unmergeable_columns,
)
from laminar_core.state.splits import split_table

SECOND = 1_000_000
INPUT = pa.schema(
    [("shop, inc. (x)", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())]
)
KEYS = ("shop, inc. (x)",)
ALL = (
    agg.count(),
    agg.sum("v", name="total"),
    agg.min("v"),
    agg.max("v"),
    agg.avg("v"),
    agg.stddev_samp("v"),
    agg.first("v", by="ts"),
    agg.last("v", by="ts"),
    agg.count_distinct("v"),
    agg.approx_count_distinct("v", name="about"),
    agg.percentile("v", 0.5),
    agg.approx_percentile("v", 0.5, name="roughly"),
)


class Longest:
    name = "longest"
    state_type = pa.int64()
    result_type = pa.int64()

    def init(self) -> int:
        return 0

    def accumulate(self, state: int, *values: pa.Array) -> int:
        return max(state, len(values[0]))

    def merge(self, left: int, right: int) -> int:
        return max(left, right)

    def finish(self, state: int) -> int:
        return state


def batch(seed: int) -> pa.RecordBatch:
    dice = np.random.default_rng(seed)
    times = dice.integers(0, 60 * SECOND, 40)
    return pa.record_batch(
        [
            pa.array([f"m{number}" for number in dice.integers(0, 5, 40)]),
            pa.array(times, pa.int64()).cast(INPUT.field("ts").type),
            pa.array(dice.integers(0, 9, 40) / 4, mask=dice.random(40) < 0.1),
        ],
        schema=INPUT,
    )


def context() -> SubtaskContext:
    return SubtaskContext("totals", 0, 1, 128, Generation(1))


def window_specs(
    aggregates=ALL, window: Window | None = None
) -> tuple[PartialAggregate, WindowAggregate]:
    window = window or tumbling("10 seconds")
    return (
        PartialAggregate("partial", KEYS, "ts", window, aggregates),
        WindowAggregate("totals", KEYS, window, aggregates, allowed_lateness_us=SECOND),
    )


def cuts(partial, spec, watermarks_s: Iterable[int | None]) -> tuple[list[pa.Table], Snapshot]:
    """Tables of one cut after each batch, and all that there is after the last one."""
    subtask: Any = spec.open(context(), partial.output_schema(INPUT))
    combine = partial.open(context(), INPUT)
    tables: list[pa.Table] = []
    for seed, watermark_s in enumerate(watermarks_s):
        for rows in combine.process(batch(seed)):
            list(subtask.process(rows))
        if watermark_s is not None:
            list(subtask.on_watermark(watermark_s * SECOND))
        changes = subtask.snapshot_changes(CheckpointId(seed + 1))()
        tables += changes.rows()
    return tables, subtask.snapshot(CheckpointId(9))()


def finished_us(spec, whole: Snapshot) -> int | None:
    found = finished_window_us(spec.describe(), whole.properties)
    assert found == whole.expired_us.get(""), "readers of old manifests find the same"
    return found


def as_dict(table: pa.Table, keys: tuple[str, ...]) -> dict[tuple, dict]:
    found = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


@pytest.mark.parametrize(
    "window",
    [tumbling("10 seconds"), cumulative("20 seconds", "5 seconds", offset="1 second")],
    ids=["tumbling", "cumulative"],
)
@pytest.mark.parametrize("watermarks_s", [(None,), (None, None, None), (5, 21, None), (5, 21, 45)])
def test_partial_results_of_windows_add_up(watermarks_s, window):
    partial, spec = window_specs(window=window)
    tables, whole = cuts(partial, spec, watermarks_s)
    (wanted,) = whole.rows()
    found = merged_rows(tables, spec.describe(), finished_us(spec, whole))
    keys = key_columns(spec.describe(), found.schema)
    assert keys == (*KEYS, "window_start")
    assert found.schema.names == wanted.schema.names
    mine, theirs = as_dict(found, keys), as_dict(wanted, keys)
    assert mine.keys() == theirs.keys()
    for key, row in theirs.items():
        for name, value in row.items():
            if isinstance(value, float | dict) and name.startswith(("sum", "moments", "t_digest")):
                continue  # Added up in another order; digests as well.
            assert mine[key][name] == value
    assert "sum(v)" in found.schema.names
    totals = [call_function("sum", [side.column("sum(v)")]).as_py() for side in (found, wanted)]
    assert totals[0] == pytest.approx(totals[1])


def test_of_running_totals_the_newest_counts():
    combine, spec = CombineRows("partial", KEYS, ALL), RunningAggregate("totals", KEYS, ALL)
    tables, whole = cuts(combine, spec, (None, None, None))
    (wanted,) = whole.rows()
    assert sum(table.num_rows for table in tables) > wanted.num_rows
    found = merged_rows(tables, spec.describe(), finished_us(spec, whole))
    assert key_columns(spec.describe(), found.schema) == KEYS
    assert as_dict(found, KEYS) == as_dict(wanted, KEYS)


def test_windows_that_have_fired_are_left_out_though_a_file_has_them():
    partial, spec = window_specs((agg.count(),))
    tables, whole = cuts(partial, spec, (None, 45))
    start = datetime(1970, 1, 1, 0, 0, 40, tzinfo=UTC)
    assert min(tables[0].column("window_start").to_pylist()) < start
    found = merged_rows(tables[:1], spec.describe(), finished_us(spec, whole))
    assert min(found.column("window_start").to_pylist()) == start  # The one before fired at 41 s.


def test_state_of_a_users_aggregate_is_null_where_it_is_in_pieces():
    partial, spec = window_specs((agg.count(), agg.user(Longest(), "v", name="x")))
    tables, whole = cuts(partial, spec, (None, None))
    assert unmergeable_columns(tables[0].schema) == ["user_longest(v)"]
    assert unmergeable_columns(tables[0].schema, "sessions") == [], "the newest row counts there"
    found = merged_rows(tables, spec.describe(), finished_us(spec, whole))
    keys = key_columns(spec.describe(), found.schema)
    pieces = [as_dict(table, keys) for table in tables]
    for key, row in as_dict(found, keys).items():
        kept = [piece[key]["user_longest(v)"] for piece in pieces if key in piece]
        assert row["user_longest(v)"] == (kept[0] if len(kept) == 1 else None)
    assert merged_rows(tables[:1], spec.describe(), None).equals(tables[0])


def test_state_of_a_newer_version_is_refused():
    partial, spec = window_specs((agg.sum("v"),))
    tables, whole = cuts(partial, spec, (None, None))
    newer = {VERSIONS_KEY: json.dumps({"sum(v)": 7}).encode()}
    tables[1] = tables[1].replace_schema_metadata(newer)
    with pytest.raises(IncompatibleStateError, match="version 7"):
        merged_rows(tables, spec.describe(), finished_us(spec, whole))


def test_other_operators_write_all_they_have():
    splits = split_table([{"split_id": n, "split": str(n), "offset": "x"} for n in (1, 2)])
    assert merged_rows([splits, splits], {"kind": "parquet"}, None).num_rows == 4


@pytest.mark.parametrize(
    ("description", "columns", "keys"),
    [
        ({"keys": ["a", "b"]}, ["key_group", "a", "b", "count(*)"], ("a", "b")),
        ({"keys": ["a"]}, ["a", "window_start"], ("a", "window_start")),
        ({"keys": ["gone"]}, ["a"], ()),
        ({"keys": []}, ["window_start", "count(*)"], ("window_start",)),
        (
            {"kind": "deduplicate"},
            ["key_group", "producer", "generation", "first", "last"],
            ("producer", "generation", "first"),
        ),
        ({"kind": "parquet"}, ["split_id", "offset"], ("split_id",)),
        ({"kind": "collect"}, ["x", "y"], ()),
        ({}, ["x"], ()),
    ],
)
def test_keys_distinguish_rows(description, columns, keys):
    assert key_columns(description, pa.schema([(name, pa.int64()) for name in columns])) == keys


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("count(*)", "count"),
        ("sum(amount (EUR), net)", "sum"),
        ("first(a, b)", "first"),
        ("hyperloglog_14(c)", "hyperloglog_14"),
        ("t_digest_200(c)", "t_digest_200"),
        ("user_longest(v)", "user_longest"),
    ],
)
def test_a_column_says_which_accumulator_it_is(name, label):
    accumulator = accumulator_of(pa.field(name, pa.int64()))
    assert (accumulator.name, accumulator.label) == (name, label)
