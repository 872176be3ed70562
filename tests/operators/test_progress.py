"""Subtasks that had come differently far go on as others: as if nothing had happened to them.

The same rows and watermarks are given to two subtasks that go on, and to those that take over
from them, now and then by another number again. What is emitted and what is late must be the same.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_groups_of, partition
from laminar_core.operators import agg
from laminar_core.operators.aggregation import (
    PartialAggregate,
    WindowAggregate,
    WindowAggregator,
)
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.operators.progress import (
    FIRED_AHEAD,
    Progress,
    least_watermark_us,
    progress_properties,
)
from laminar_core.operators.windows import Window, cumulative, sliding, tumbling
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.state.rescaling import Rescaling

SECOND = 1_000_000
KEY_GROUPS = 16
INPUT = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
AGGREGATES = (agg.count(), agg.sum("v", name="total"))


class Subtasks:
    """All subtasks of one operator."""

    def __init__(self, window: Window, lateness_us: int, parallelism: int) -> None:
        self.partial = PartialAggregate("partial", ("key",), "ts", window, AGGREGATES)
        self.spec = WindowAggregate("w", ("key",), window, AGGREGATES, lateness_us)
        self.emitted: list[tuple] = []
        self.subtasks = self._open(parallelism)

    def _open(self, parallelism: int) -> list[WindowAggregator]:
        schema = self.partial.output_schema(INPUT)
        contexts = [
            SubtaskContext("w", n, parallelism, KEY_GROUPS, Generation(1))
            for n in range(parallelism)
        ]
        return [self.spec.open(context, schema) for context in contexts]

    def feed(self, rows: pa.RecordBatch) -> None:
        opened = self.partial.open(SubtaskContext("p", 0, 1, KEY_GROUPS, Generation(1)), INPUT)
        for combined in opened.process(rows):
            for owner, part in partition(combined, ["key"], KEY_GROUPS, len(self.subtasks)):
                list(self.subtasks[owner].process(part))

    def advance(self, watermark_us: int, *subtasks: int) -> None:
        for n in subtasks or range(len(self.subtasks)):
            for batch in self.subtasks[n].on_watermark(watermark_us):
                self.emitted += [tuple(row.values()) for row in batch.to_pylist()]

    def rescale(self, parallelism: int) -> None:
        kept = [kept_by(subtask) for subtask in self.subtasks]
        rescaling = Rescaling(len(kept), parallelism, KEY_GROUPS)
        self.subtasks = self._open(parallelism)
        for n, subtask in enumerate(self.subtasks):
            origins = rescaling.origins("keyed", n)
            subtask.restore([kept[origin] for origin in origins])

    @property
    def late(self) -> int:
        return sum(subtask.late_row_count for subtask in self.subtasks)


def kept_by(subtask: WindowAggregator) -> Snapshot:
    """A snapshot that can be read more than once."""
    snapshot = subtask.snapshot(CheckpointId(1))()
    return replace(snapshot, tables=list(snapshot.tables))


def some_rows(dice: Random, around_s: int) -> pa.RecordBatch:
    keys = [f"k{dice.randrange(9)}" for _ in range(6)]
    times = [(around_s + dice.randrange(-25, 15)) * SECOND for _ in keys]
    stamps = pa.array(times, pa.int64()).cast(INPUT.field("ts").type)
    return pa.record_batch([keys, stamps, [dice.randrange(9) for _ in keys]], schema=INPUT)


@pytest.mark.parametrize(
    "window",
    [
        tumbling("10 seconds"),
        sliding("30 seconds", "10 seconds"),
        cumulative("30 seconds", "10 seconds"),
    ],
    ids=lambda window: window.describe()["kind"],
)
@pytest.mark.parametrize("lateness_us", [0, 7 * SECOND])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_emitted_twice_and_nothing_else_is_late(window, lateness_us, seed) -> None:
    dice = Random(seed)
    stays, moves = Subtasks(window, lateness_us, 3), Subtasks(window, lateness_us, 3)

    def both(act: Callable[[Subtasks], None]) -> None:
        act(stays)
        act(moves)

    for second in range(0, 60, 5):
        rows = some_rows(dice, second)
        both(lambda one, rows=rows: one.feed(rows))
    for n, second in enumerate(dice.sample(range(20, 50), 2)):  # The third one knows nothing.
        both(lambda one, n=n, second=second: one.advance(second * SECOND, n))
    for second in range(10, 90, 4):
        if dice.random() < 0.4:
            moves.rescale(dice.choice((1, 2, 4, 5)))
        rows = some_rows(dice, second)
        both(lambda one, rows=rows: one.feed(rows))
        both(lambda one, second=second: one.advance(second * SECOND))
    both(lambda one: one.advance(WATERMARK_END_US))
    assert sorted(moves.emitted) == sorted(stays.emitted)
    assert moves.late == stays.late
    assert stays.late or lateness_us


def test_once_the_watermark_has_caught_up_nothing_is_left_of_it() -> None:
    moves = Subtasks(tumbling("10 seconds"), 0, 2)
    moves.advance(30 * SECOND, 0)
    moves.advance(10 * SECOND, 1)
    moves.rescale(1)

    def ahead() -> object:
        return moves.subtasks[0].snapshot(CheckpointId(2))().properties.get(FIRED_AHEAD)

    assert ahead() == [[0, 8, 30 * SECOND], [8, 16, 10 * SECOND]]
    moves.advance(29 * SECOND)
    assert ahead() is not None
    moves.advance(30 * SECOND)
    assert ahead() is None


def test_subtasks_that_were_abreast_leave_no_trace() -> None:
    moves = Subtasks(tumbling("10 seconds"), 0, 2)
    moves.advance(30 * SECOND)
    moves.rescale(3)
    assert all(
        FIRED_AHEAD not in subtask.snapshot(CheckpointId(2))().properties
        for subtask in moves.subtasks
    )


def test_progress_of_key_groups_that_are_not_owned_is_not_taken() -> None:
    ahead = Progress(KEY_GROUPS)
    properties = {"watermark_us": 5, FIRED_AHEAD: [[0, 6, 9], [10, 16, 7]]}
    ahead.restore([Snapshot((), properties)], [range(16)], range(4, 12))
    assert ahead.properties() == [[4, 6, 9], [6, 10, 5], [10, 12, 7]]


def test_a_row_at_the_watermark_of_its_key_group_is_in_time() -> None:
    """Any operator asks, with any columns as keys and any time."""
    groups = {name: group_of(name) for name in "abcdefgh"}
    assert len(set(groups.values())) > 1
    properties = {"watermark_us": None, FIRED_AHEAD: [[groups["a"], groups["a"] + 1, 7]]}
    progress = Progress(KEY_GROUPS).restore([Snapshot((), properties)], [range(16)], range(16))
    rows = pa.table({"x": range(8), "name": list(groups)})
    for time_us, late in ((6, True), (7, False)):
        found = progress.is_late(rows, ["name"], np.full(8, time_us))
        assert found.tolist() == [late and group == groups["a"] for group in groups.values()]
    assert progress.is_late(rows.slice(0, 0), ["name"], np.empty(0, np.int64)).tolist() == []


def group_of(name: str) -> int:
    batch = pa.record_batch({"name": [name]})
    return int(key_groups_of(batch, ["name"], KEY_GROUPS)[0])


@pytest.mark.parametrize(
    ("watermarks_us", "least_us"), [((5, 3), 3), ((5, None), None), ((), None), ((None,), None)]
)
def test_the_least_watermark_counts_and_an_unknown_one_is_less_than_any(
    watermarks_us, least_us
) -> None:
    snapshots = [Snapshot((), progress_properties(us, None)) for us in watermarks_us]
    assert least_watermark_us(snapshots) == least_us
    ranges = [range(4 * n, 4 * n + 4) for n in range(len(snapshots))]
    ahead = Progress.restored(snapshots, ranges, range(8), KEY_GROUPS)
    assert (ahead is not None) == (len({*watermarks_us}) > 1)
    if ahead is not None:
        assert progress_properties(3, ahead)[FIRED_AHEAD] == ahead.properties()
