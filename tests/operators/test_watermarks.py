"""Watermarks follow the newest row at a distance and never go back."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.operators.watermarks import AssignWatermarks, WatermarkAssigner
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation, Watermark

CONTEXT = SubtaskContext("w", 0, 1, 128, Generation(1))
SCHEMA = pa.schema([("ts", pa.timestamp("us"))])


def opened(max_delay_us: int = 10) -> WatermarkAssigner:
    return AssignWatermarks("w", "ts", max_delay_us).open(CONTEXT, SCHEMA)


def batch(*times: int | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(times, pa.timestamp("us"))], schema=SCHEMA)


def watermarks(assigner: WatermarkAssigner, *batches: pa.RecordBatch) -> list[list[int]]:
    """Watermarks that follow each batch; the batch itself always goes first, unchanged."""
    happened = []
    for rows in batches:
        results = list(assigner.process(rows))
        if rows.num_rows:
            assert results.pop(0) is rows
        assert all(isinstance(result, Watermark) for result in results)
        happened.append([result.time_us for result in results])
    return happened


def test_the_watermark_is_the_newest_time_minus_the_delay() -> None:
    assert watermarks(opened(), batch(100, 130, 120)) == [[120]]


def test_it_is_sent_only_when_it_rises() -> None:
    batches = [batch(100), batch(90), batch(100), batch(101)]
    assert watermarks(opened(), *batches) == [[90], [], [], [91]]


def test_a_row_at_the_watermark_is_in_time() -> None:
    """Goal: a delay of exactly the maximum is allowed, as "no later row is older" promises."""
    [[watermark_us]] = watermarks(opened(max_delay_us=10), batch(100))
    assert watermark_us <= 100 - 10


def test_rows_without_event_time_say_nothing_about_it() -> None:
    assert watermarks(opened(), batch(None), batch(None, 50), batch(None)) == [[], [40], []]


def test_empty_batches_are_harmless() -> None:
    assert watermarks(opened(), batch(), batch(50), batch()) == [[], [40], []]


def test_time_before_1970_counts_too() -> None:
    assert watermarks(opened(), batch(-100), batch(-50)) == [[-110], [-60]]


def test_a_sentinel_does_not_end_all_windows() -> None:
    schema = pa.schema([("ts", pa.int64())])
    assigner = AssignWatermarks("w", "ts", 0).open(CONTEXT, schema)
    with pytest.raises(DataError, match="check the unit"):
        list(assigner.process(pa.record_batch([[2**63 - 1]], schema=schema)))


def test_watermarks_from_upstream_add_no_rows() -> None:
    assert list(opened().on_watermark(WATERMARK_END_US)) == []


def test_event_time_begins_anew_here() -> None:
    assigner = opened()
    watermarks(assigner, batch(100))
    assert assigner.output_watermark(1_000) is None, "its own travel with the rows"
    assert restored(100, 50).output_watermark(1_000) == 40
    assert restored(None).output_watermark(1_000) is None


def restored(*newest_us: int | None) -> WatermarkAssigner:
    assigner = opened()
    assigner.restore([Snapshot(properties={"newest_us": time_us}) for time_us in newest_us])
    return assigner


def test_a_restored_one_does_not_go_back() -> None:
    assigner = opened()
    watermarks(assigner, batch(100))
    pending = assigner.snapshot(CheckpointId(1))
    watermarks(assigner, batch(200))  # After the cut: not in the snapshot.
    successor = opened()
    successor.restore([pending()])
    assert watermarks(successor, batch(30), batch(40), batch(101)) == [[90], [], [91]]


@pytest.mark.parametrize(
    ("snapshots", "after_30"), [((100, 50), [40]), ((100, None), [20]), ((None,), [20]), ((), [20])]
)
def test_of_several_snapshots_the_oldest_counts(snapshots: tuple, after_30: list[int]) -> None:
    assert watermarks(restored(*snapshots), batch(30)) == [after_30]


def test_a_snapshot_before_any_row_is_restored() -> None:
    assert opened().snapshot(CheckpointId(1))() == Snapshot(properties={"newest_us": None})


def test_the_spec_passes_its_input_on_and_describes_itself() -> None:
    spec = AssignWatermarks("w", "ts", 10)
    assert spec.output_schema(SCHEMA) == SCHEMA
    assert spec.describe() == {"kind": "watermark", "column": "ts", "max_delay_us": 10}


@pytest.mark.parametrize(
    ("column", "data_type", "code"),
    [("time", pa.int64(), ErrorCode.WRONG_SCHEMA), ("ts", pa.string(), ErrorCode.UNSUPPORTED_TYPE)],
)
def test_a_column_that_is_no_time_is_refused(
    column: str, data_type: pa.DataType, code: ErrorCode
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AssignWatermarks("w", column, 10).output_schema(pa.schema([("ts", data_type)]))
    assert caught.value.code is code
