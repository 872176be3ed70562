"""The account of one cut: what is open, what it holds, when it is complete, and what is counted."""

import pytest

from laminar_core.protocol.types import CheckpointBarrier, CheckpointId
from laminar_core.protocol.unaligned import (
    SWITCHES_IN_A_ROW,
    QueueId,
    SwitchStreak,
    UnalignedCheckpointer,
    UnalignedCheckpointMetrics,
)

ONE = CheckpointId(1)
TIMED = CheckpointBarrier(ONE, alignment_timeout_ms=1_000)


def account() -> UnalignedCheckpointer[str]:
    return UnalignedCheckpointer(100, len)


def test_a_checkpoint_is_open_until_the_barrier_has_left_every_output_queue() -> None:
    """ERRATA 0.7: what the barrier may still overtake there is part of the cut."""
    of = account()
    of.begin(TIMED, "aligned", outputs=(0, 1))
    of.seal_inputs()
    assert of.open_outputs == [0, 1]
    of.left(0)
    snapshot = of.snapshot()
    assert snapshot is not None
    assert (snapshot.complete, snapshot.mode) == (False, "aligned")
    assert snapshot.open_queues == {QueueId("output", 1)}
    piece = of.capture(QueueId("output", 1), ["ab", "c"])
    assert (piece.events, piece.size_bytes, piece.last) == (("ab", "c"), 3, True)
    snapshot = of.snapshot()
    assert snapshot is not None
    assert (snapshot.complete, snapshot.mode, snapshot.size_bytes) == (True, "switched", 3)


def test_a_cut_is_counted_once_however_many_queues_are_overtaken() -> None:
    of = account()
    of.begin(TIMED, "unaligned", outputs=())
    for queue in (QueueId("output", 0), QueueId("output", 1), QueueId("input", 0)):
        of.capture(queue, ["a"])
    metrics = of.metrics()
    assert (metrics.unaligned_count, metrics.threshold_switches) == (1, 1)
    assert metrics.total_inflight_bytes == 3


def test_nothing_is_known_before_a_cut_and_after_its_end() -> None:
    of = account()
    assert (of.checkpoint_id, of.snapshot(), of.exceeded()) == (None, None, None)
    of.begin(TIMED, "unaligned", outputs=(0,))
    assert of.checkpoint_id == ONE
    of.end()
    assert (of.checkpoint_id, of.snapshot(), of.open_outputs) == (None, None, [])


def test_what_a_given_up_checkpoint_held_does_not_count_for_the_next_one() -> None:
    of = account()
    of.begin(TIMED, "unaligned", outputs=())
    of.capture(QueueId("input", 0), ["x" * 101], recording=True)
    assert of.exceeded() is not None
    of.begin(CheckpointBarrier(CheckpointId(2), alignment_timeout_ms=0), "unaligned", outputs=())
    assert of.exceeded() is None
    of.record(QueueId("input", 0), "x" * 100)
    assert of.exceeded() is None


def test_a_cut_is_not_complete_before_its_inputs_are_sealed() -> None:
    of = account()
    of.begin(TIMED, "aligned", outputs=())
    snapshot = of.snapshot()
    assert snapshot is not None
    assert not snapshot.complete


def test_a_queue_says_when_nothing_follows() -> None:
    of = account()
    of.begin(TIMED, "unaligned", outputs=())
    assert of.capture(QueueId("input", 0), ["a"]).last
    assert not of.capture(QueueId("input", 1), ["a"], recording=True).last
    assert not of.record(QueueId("input", 1), "b").last
    assert of.seal(QueueId("input", 1)).last


def test_the_log_of_a_loop_is_recorded_by_an_aligned_cut() -> None:
    """PROTOCOL 8: the feedback channel is recorded at every cut, and that overtakes nothing."""
    of = account()
    of.begin(TIMED, "aligned", outputs=())
    of.capture(QueueId("input", 1), [], recording=True)
    of.record(QueueId("input", 1), "a")
    assert not of.metrics().is_in_unaligned_mode
    assert of.metrics().unaligned_count == 0
    of.seal(QueueId("input", 1))
    of.seal_inputs()
    snapshot = of.snapshot()
    assert snapshot is not None
    assert (snapshot.complete, snapshot.mode, snapshot.size_bytes) == (True, "aligned", 1)


def test_counters_of_several_subtasks_add_up() -> None:
    parts = [
        UnalignedCheckpointMetrics(2, 1, 100, is_in_unaligned_mode=False),
        UnalignedCheckpointMetrics(3, 0, 20, is_in_unaligned_mode=True),
    ]
    assert UnalignedCheckpointMetrics.total(parts) == UnalignedCheckpointMetrics(
        5, 1, 120, is_in_unaligned_mode=True
    )
    assert UnalignedCheckpointMetrics.total([]) == UnalignedCheckpointMetrics()


def test_a_streak_of_switches_is_noticed_once_and_then_anew() -> None:
    streak = SwitchStreak()
    for _ in range(2):
        told = [streak.ended("switched") for _ in range(SWITCHES_IN_A_ROW)]
        assert told == [False] * (SWITCHES_IN_A_ROW - 1) + [True]


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_another_mode_ends_a_streak(mode) -> None:
    streak = SwitchStreak()
    told = [streak.ended("switched") for _ in range(SWITCHES_IN_A_ROW - 1)]
    told.append(streak.ended(mode))
    told += [streak.ended("switched") for _ in range(SWITCHES_IN_A_ROW - 1)]
    assert not any(told)
