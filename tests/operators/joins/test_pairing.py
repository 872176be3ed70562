"""Semi and anti joins of pairs: each left row leaves once, or not at all."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.errors import ConfigurationError
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.pairing import PairJoiner
from laminar_core.operators.joins.side import JoinSide
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import (
    KEYS,
    LEFT_SCHEMA,
    MAX_PARALLELISM,
    RIGHT_SCHEMA,
    History,
    Row,
    batch,
    context,
    dense_steps,
)

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")


def join(how: How) -> IntervalJoin:
    return IntervalJoin("join", LEFT, RIGHT, -5, 5, how=how)


def opened(how: How) -> PairJoiner:
    return join(how).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)


def emitted(*parts: pa.RecordBatch) -> list[int]:
    return [row["id"] for part in parts for row in part.to_pylist()]


def test_a_row_of_a_semi_join_leaves_with_its_first_partner_only() -> None:
    subtask = opened("semi")
    assert emitted(*subtask.process_input(0, batch(0, [("a", 10, 1), ("b", 10, 2)]))) == []
    rows: list[Row] = [("a", 11, 7), ("a", 12, 8), ("c", 12, 9)]
    assert emitted(*subtask.process_input(1, batch(1, rows))) == [1]
    assert emitted(*subtask.process_input(1, batch(1, [("a", 13, 7), ("b", 15, 8)]))) == [2]
    assert emitted(*subtask.process_input(0, batch(0, [("c", 10, 3), ("c", 10, 4)]))) == [3, 4]
    assert emitted(*subtask.on_watermark(WATERMARK_END_US)) == []


def test_a_row_of_an_anti_join_leaves_when_it_expires_without_partner() -> None:
    subtask = opened("anti")
    list(subtask.process_input(0, batch(0, [("a", 10, 1), ("b", 10, 2)])))
    assert emitted(*subtask.process_input(1, batch(1, [("a", 12, 7)]))) == []
    assert subtask.output_watermark(14) == 10, "b can still be emitted"
    assert emitted(*subtask.on_watermark(15)) == []
    assert emitted(*subtask.on_watermark(16)) == [2]
    assert subtask.output_watermark(16) == 16


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_left_rows_whose_partner_is_there_and_columns_of_partners_are_not_kept(how: How) -> None:
    subtask = opened(how)
    list(subtask.process_input(1, batch(1, [("a", 10, 7)])))
    list(subtask.process_input(0, batch(0, [("a", 10, 1), ("a", 11, 2), ("b", 12, 3)])))
    tables = {t.name: t.rows for t in subtask.snapshot(CheckpointId(1))().tables}
    assert tables["left"].column("id").to_pylist() == [3]
    assert tables["right"].column_names == ["key_group", "key", "t", "_expires"]
    assert subtask.held_row_count == 2


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_null_keys_are_those_of_left_semi_and_left_anti_in_spark(how: How) -> None:
    subtask = opened(how)
    list(subtask.process_input(1, batch(1, [(None, 10, 7)])))
    rows = subtask.process_input(0, batch(0, [(None, 10, 1), ("a", None, 2)]))
    assert sorted(emitted(*rows)) == ([] if how == "semi" else [1, 2])


def test_columns_of_the_right_side_need_no_names_and_no_order() -> None:
    right = RIGHT_SCHEMA.append(pa.field("id_right", pa.int64()))
    right = right.append(pa.field("id", pa.list_(pa.int64())))
    assert join("semi").output_schema(LEFT_SCHEMA, right).equals(LEFT_SCHEMA)
    with pytest.raises(ConfigurationError, match="another suffix"):
        join("inner").output_schema(LEFT_SCHEMA, right)


class EndingHistory(History):
    """A history that remembers how far event time had come when the input ended."""

    before_end_us: Sequence[int] = ()
    """By key group."""

    def _advance(self, subtask: int, watermark_us: int) -> None:
        if watermark_us == WATERMARK_END_US and not self.before_end_us:
            self.before_end_us = list(self._reached_us)
        super()._advance(subtask, watermark_us)


@pytest.mark.parametrize("seed", range(8))
def test_rows_that_can_have_no_partner_any_more_are_counted_once(seed: int) -> None:
    """Goal: whenever memory drops them, whatever is cut, and with any number of workers."""
    how: How = ("inner", "full")[seed % 2]
    high_us = (3, -1)[seed // 4]
    spec = IntervalJoin("join", LEFT, RIGHT, -4, high_us, how=how)
    steps = [*dense_steps(seed), ("watermark", 3), *dense_steps(seed)]
    history = EndingHistory(spec, (), 1 + seed % 3).run(steps)
    gone = 0
    for side, kept_us in enumerate((max(0, high_us), 4)):
        rows = [row for row in history.accepted[side] if row[0] is not None and row[1] is not None]
        groups = key_groups_of(batch(side, rows), [KEYS[side]], MAX_PARALLELISM).tolist()
        reached = [history.before_end_us[group] for group in groups]
        gone += sum(row[1] + kept_us < us for row, us in zip(rows, reached, strict=True))
    assert gone
    assert sum(subtask.expired_row_count for subtask in history.subtasks) == gone


def test_what_leaves_because_the_input_ends_has_not_expired() -> None:
    subtask = opened("full")
    list(subtask.process_input(0, batch(0, [("a", 10, 1), ("b", 20, 2)])))
    list(subtask.on_watermark(16))
    assert subtask.expired_row_count == 1
    list(subtask.on_watermark(WATERMARK_END_US))
    properties = subtask.snapshot(CheckpointId(1))().properties
    assert (subtask.expired_row_count, properties["expired_row_count"]) == (1, 1)
