"""Rows and event time pass through a chain in order; what time completes goes ahead of it."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.operators.base import Emitted, PendingSnapshot, Side, Snapshot
from laminar_core.operators.watermarks import AssignWatermarks, WatermarkAssigner
from laminar_core.protocol.types import WATERMARK_END_US, WATERMARK_MIN_US, CheckpointId, Watermark
from laminar_core.worker.operator_chain import Chain


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.int64())})


def values(batch: pa.RecordBatch) -> list[int]:
    return batch.column("value").to_pylist()


class Operator:
    """Base of the operators here: everything passes."""

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        yield batch

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        del watermark_us
        return ()


class Twice(Operator):
    """Every batch two times."""

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        yield batch
        yield batch


class Drop(Operator):
    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        del batch
        return ()


class Marks(Operator):
    """A batch between two watermarks of its own: its first value, and one more."""

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        (first, *_) = values(batch)
        yield Watermark(first)
        yield batch
        yield Watermark(first + 1)


class Announces(Operator):
    """Announces the time that it is given."""

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        yield rows(watermark_us)


class Holds(Operator):
    """Keeps batches until event time advances."""

    def __init__(self) -> None:
        self._held: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        self._held.append(batch)
        return ()

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        del watermark_us
        held, self._held = self._held, []
        yield from held


class Delays(Operator):
    """Holds the watermark back by 10, and all of them until 20."""

    def output_watermark(self, watermark_us: int) -> int | None:
        return None if watermark_us < 20 else watermark_us - 10


class Follows(Operator):
    """Lets pass what it is set to."""

    output_us = 5

    def output_watermark(self, watermark_us: int) -> int:
        del watermark_us
        return self.output_us


class Sorts(Operator):
    """Puts odd values aside, and at each watermark the number of it."""

    def process(self, batch: pa.RecordBatch) -> Iterable[Emitted]:
        odd = pc.call_function("equal", [pc.call_function("bit_wise_and", [batch["value"], 1]), 1])
        yield Side("odd", batch.filter(odd))
        yield batch.filter(pc.call_function("invert", [odd]))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch | Side]:
        yield Side("times", rows(watermark_us))
        yield rows(-watermark_us)


def chain_of(operators: list[Operator], left: list, at_work: list[str] | None = None) -> Chain:
    """A chain of operators that are named after their places."""
    return Chain(
        [(str(place), operator) for place, operator in enumerate(operators)],
        lambda batch: left.append(values(batch)),
        left.append,
        [].append if at_work is None else at_work.append,
        lambda operator_id, side: left.append((operator_id, side.output, values(side.rows))),
    )


def trace(operators: list[Operator], *inputs: pa.RecordBatch | int) -> list:
    """Return the output: batches as lists, watermarks as numbers, side outputs with their names."""
    left: list = []
    chain = chain_of(operators, left)
    for one in inputs:
        chain.advance(one) if isinstance(one, int) else chain.process(one)
    return left


@pytest.mark.parametrize(
    ("operators", "inputs", "left"),
    [
        ([], [rows(1), 5], [[1], 5]),
        ([Twice(), Twice()], [rows(1), 5], [[1]] * 4 + [5]),
        ([Drop()], [rows(1), 5], [5]),
        ([Marks()], [rows(3)], [3, [3], 4]),
        ([Holds()], [rows(1), rows(2), 5, 6], [[1], [2], 5, 6]),
        ([Holds(), Holds()], [rows(1), 5], [[1], 5]),
        ([Marks(), Holds()], [rows(3), rows(7)], [3, [3], 4, 7, [7], 8]),
        ([Holds(), Marks()], [rows(3), 9], [3, [3], 4, 9]),
        ([Announces(), Marks()], [rows(3)], [3, [3], 4]),
        ([Marks(), Announces()], [rows(3)], [[3], 3, [3], [4], 4]),
        ([Sorts()], [rows(1, 2), 5], [("0", "odd", [1]), [2], ("0", "times", [5]), [-5], 5]),
        (
            [Twice(), Sorts(), Holds()],
            [rows(1), 5],
            [*[("1", "odd", [1])] * 2, ("1", "times", [5]), [], [], [-5], 5],
        ),
    ],
    ids=[
        *("empty", "fan-out", "drop", "marks", "holds", "two hold", "marks hold", "holds marks"),
        *("time goes down only", "time goes down", "aside", "aside in between"),
    ],
)
def test_trace(operators: list[Operator], inputs, left) -> None:
    assert trace(operators, *inputs) == left


def test_watermarks_made_of_replayed_rows_wait_for_the_last_of_them() -> None:
    """These rows are of several channels, one after the other: the second may begin far behind."""
    left: list[list[int] | int] = []
    chain = chain_of([Marks(), Holds()], left)
    chain.hold_made_watermarks()
    chain.process(rows(7))
    chain.process(rows(3))
    assert left == []
    chain.advance(2)  # From upstream: it knows of all that is replayed.
    assert left == [[7], [3], 2]
    chain.release_made_watermarks()
    assert left[3:] == [8]
    chain.process(rows(9))
    assert left[4:] == [9, [9], 10]


def test_whoever_computes_is_named_also_when_those_behind_it_have_computed() -> None:
    at_work: list[str] = []
    chain = chain_of([Twice(), Announces()], [], at_work)
    chain.process(rows(1))
    assert at_work == ["0", "1", "1", "0", "1", "1", "0"]
    at_work.clear()
    chain.advance(5)
    assert at_work == ["0", "1", "1"]


def test_what_an_operator_holds_back_reaches_nobody_behind_it() -> None:
    assert trace([Announces(), Delays(), Announces()], 19, 30, WATERMARK_END_US) == [
        *([19], [30], [20], 20),
        *([WATERMARK_END_US], [WATERMARK_END_US], WATERMARK_END_US),
    ]


def test_a_watermark_never_goes_back_and_is_passed_on_once() -> None:
    follows = Follows()
    left: list[list[int] | int] = []
    chain = chain_of([follows, Announces()], left)
    for follows.output_us in (5, 4, 5, 6):
        chain.advance(100)
    assert left == [[5], 5, [6], 6]


def test_what_is_far_below_every_time_still_fits_into_64_bits() -> None:
    follows = Follows()
    follows.output_us = -(2**64)
    left: list[list[int] | int] = []
    chain_of([follows], left).advance(0)
    assert left == [WATERMARK_MIN_US]


def test_a_watermark_that_is_made_during_a_replay_does_not_leave_with_one_from_upstream() -> None:
    spec = AssignWatermarks("time", "value", 1)
    left: list[list[int] | int] = []
    chain = chain_of([WatermarkAssigner(spec)], left)
    chain.hold_made_watermarks()
    chain.process(rows(7))
    chain.advance(3)
    assert left == [[7]]
    chain.release_made_watermarks()
    assert left == [[7], 6]


@pytest.mark.parametrize(
    ("operators", "announced_us"),
    [([], 30), ([Delays()], 20), ([Delays(), Delays()], 10), ([Delays()] * 3, None)],
)
def test_what_would_leave_is_known_without_letting_time_advance(operators, announced_us) -> None:
    left: list[list[int] | int] = []
    assert chain_of(operators, left).output_watermark(30) == announced_us
    assert left == []


class Numbers:
    """Adds a thousand for each input before the one that a batch comes on."""

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        yield rows(*(value + 1_000 * index for value in values(batch)))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        yield rows(watermark_us)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        del snapshots


def test_the_first_operator_is_told_of_which_input_a_batch_is() -> None:
    """Event time has no input; behind it each operator has one, which is no. 0."""
    taken: list[int] = []
    names: list[str] = []
    chain = Chain(
        [("numbers", Numbers()), ("twice", Twice())],
        lambda batch: taken.extend(values(batch)),
        taken.append,
        names.append,
        lambda *_: None,
    )
    chain.process(rows(1), input_index=0)
    chain.process(rows(2), input_index=2)
    chain.advance(5)
    assert taken == [1, 1, 2_002, 2_002, 5, 5, 5]
    assert names[:2] == ["numbers", "twice"]
