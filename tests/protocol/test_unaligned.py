"""The tests that document 000 names, on the two machines of an unaligned cut together.

``Operator`` is a subtask without a runtime: queues of opaque events, the alignment machine that
decides, the account that collects. Where the document's behaviour is wrong, the test has its name
and the corrected behaviour; ERRATA says why.
"""

from collections import deque

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.protocol.alignment_events import (
    AlignmentTimedOut,
    BarrierArrived,
    BarrierReached,
    CaptureChannel,
    DeclineCheckpoint,
    DiscardCheckpoint,
    Effect,
    Event,
    SealChannelState,
    SealInputs,
    SnapshotFailed,
    TakeSnapshot,
)
from laminar_core.protocol.types import ChannelId, CheckpointBarrier, CheckpointId
from laminar_core.protocol.unaligned import (
    InFlightChannelData,
    QueueId,
    UnalignedCheckpointConfig,
    UnalignedCheckpointer,
)

FORCED = UnalignedCheckpointConfig(force_unaligned=True)


class Operator:
    """A subtask with ``inputs`` channels; events are words, and their size is their length."""

    def __init__(self, inputs: int = 2, config: UnalignedCheckpointConfig | None = None) -> None:
        self.config = config or UnalignedCheckpointConfig()
        self.queues: list[deque[str | CheckpointBarrier]] = [deque() for _ in range(inputs)]
        self.aligner = BarrierAligner(frozenset(map(ChannelId, range(inputs))))
        limit_bytes = self.config.max_inflight_buffer_bytes
        self.account: UnalignedCheckpointer[str] = UnalignedCheckpointer(limit_bytes, len)
        self.processed = ""
        self.cuts: list[tuple[int, str, str]] = []
        """(checkpoint, mode, events processed before it)."""
        self.inflight: dict[int, str] = {}
        self.completed: list[tuple[int, str]] = []
        self.declined: list[str] = []

    def barrier(self, checkpoint_id: int) -> CheckpointBarrier:
        """As the coordinator sends it under this configuration."""
        timeout_ms = self.config.alignment_timeout_ms
        return CheckpointBarrier(
            CheckpointId(checkpoint_id),
            alignment_timeout_ms=timeout_ms,
            unaligned=timeout_ms == 0,
        )

    def arrive(self, channel: int, script: str) -> None:
        """``ab2c``: events and, as digits, barriers enter the queue."""
        for letter in script:
            barrier = self.barrier(int(letter)) if letter.isdigit() else None
            self.queues[channel].append(barrier or letter)
            if barrier is not None:
                self.on(BarrierArrived(ChannelId(channel), barrier))
            elif self.aligner.records(ChannelId(channel)):
                self.keep(self.account.record(QueueId("input", channel), letter))

    def work(self) -> None:
        """Process whatever may be processed, channel by channel."""
        for channel, queue in enumerate(self.queues):
            while queue and not self.aligner.holds(ChannelId(channel)):
                element = queue.popleft()
                if isinstance(element, CheckpointBarrier):
                    self.on(BarrierReached(ChannelId(channel), element))
                else:
                    self.processed += element

    def time_out(self, checkpoint_id: int) -> None:
        self.on(AlignmentTimedOut(CheckpointId(checkpoint_id)))

    def on(self, event: Event) -> None:
        for effect in self.aligner.on(event):
            self.carry_out(effect)
        snapshot = self.account.snapshot()
        if snapshot is not None and (reason := self.account.exceeded()):
            self.on(SnapshotFailed(snapshot.barrier.checkpoint_id, reason))
        elif snapshot is not None and snapshot.complete:
            self.completed.append((snapshot.barrier.checkpoint_id, snapshot.mode))
            self.account.end()

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case TakeSnapshot(barrier, mode):
                self.account.begin(barrier, mode, outputs=())
                self.cuts.append((barrier.checkpoint_id, mode, self.processed))
                self.inflight = {}
            case CaptureChannel(checkpoint_id, channel, recording):
                queued = self.ahead_of(checkpoint_id, channel)
                queue = QueueId("input", channel)
                self.keep(self.account.capture(queue, queued, recording=recording))
            case SealChannelState(_, channel):
                self.keep(self.account.seal(QueueId("input", channel)))
            case SealInputs():
                self.account.seal_inputs()
            case DiscardCheckpoint():
                self.account.end()
            case DeclineCheckpoint(reason=reason):
                self.declined.append(reason)
            case _:
                pass

    def ahead_of(self, checkpoint_id: CheckpointId, channel: int) -> list[str]:
        ahead: list[str] = []
        for element in self.queues[channel]:
            if isinstance(element, CheckpointBarrier):
                if element.checkpoint_id == checkpoint_id:
                    break
            else:
                ahead.append(element)
        return ahead

    def keep(self, data: InFlightChannelData[str]) -> None:
        number = data.queue.number
        self.inflight[number] = self.inflight.get(number, "") + "".join(data.events)


def test_unaligned_config_defaults() -> None:
    config = UnalignedCheckpointConfig()
    assert config.enabled
    assert config.alignment_timeout_threshold_ms == 30_000
    assert config.max_inflight_buffer_bytes == 512 * 1024 * 1024
    assert not config.force_unaligned
    assert config.alignment_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("options", "timeout_ms"),
    [
        ({"enabled": False}, None),
        ({"force_unaligned": True}, 0),
        ({"alignment_timeout_threshold_ms": 5}, 5),
    ],
)
def test_one_mode_follows_from_the_configuration(options, timeout_ms: int | None) -> None:
    """ERRATA 0.20: no flag is looked at twice, with two answers."""
    assert UnalignedCheckpointConfig(**options).alignment_timeout_ms == timeout_ms


@pytest.mark.parametrize(
    "options",
    [
        {"alignment_timeout_threshold_ms": 0},
        {"max_inflight_buffer_bytes": 0},
        {"enabled": False, "force_unaligned": True},
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(options) -> None:
    with pytest.raises(ConfigurationError) as caught:
        UnalignedCheckpointConfig(**options)
    assert caught.value.code is ErrorCode.INVALID_OPTION


def test_immediate_unaligned_with_flag() -> None:
    """The flag on the barrier alone decides, also where the timeout is not spent."""
    operator = Operator()
    operator.arrive(1, "x")
    flagged = CheckpointBarrier(CheckpointId(1), alignment_timeout_ms=30_000, unaligned=True)
    operator.on(BarrierArrived(ChannelId(0), flagged))
    assert operator.cuts == [(1, "unaligned", "")]
    assert operator.inflight == {0: "", 1: "x"}


def test_force_unaligned_mode() -> None:
    operator = Operator(config=FORCED)
    operator.arrive(0, "ab1")
    assert operator.cuts == [(1, "unaligned", "")], "the barrier overtakes what is queued before it"
    operator.arrive(1, "1")
    assert operator.completed == [(1, "unaligned")]


def test_force_unaligned_holds_for_a_single_input_too() -> None:
    """ERRATA 0.20."""
    operator = Operator(1, FORCED)
    operator.arrive(0, "ab1c")
    assert operator.cuts == [(1, "unaligned", "")]
    assert (operator.inflight, operator.completed) == ({0: "ab"}, [(1, "unaligned")])


def test_threshold_switch_from_aligned() -> None:
    """Goal: the switch carries over what is aligned and what is held (ERRATA 0.3 and 0.4).

    Method: three inputs; one aligned with an event held behind its barrier, one whose barrier is
    queued, one without.
    """
    operator = Operator(3)
    operator.arrive(0, "a1b")
    operator.work()
    operator.arrive(1, "c1d")
    operator.arrive(2, "e")
    assert (operator.cuts, operator.aligner.holds(ChannelId(0))) == ([], True)
    operator.time_out(1)
    assert operator.cuts == [(1, "unaligned", "a")]
    assert operator.inflight == {1: "c", 2: "e"}, "nothing of the aligned channel"
    assert not operator.aligner.holds(ChannelId(0))
    operator.arrive(2, "f1g")
    assert operator.inflight == {1: "c", 2: "ef"}
    assert operator.completed == [(1, "switched")]
    operator.work()
    assert sorted(operator.processed) == list("abcdefg")


def test_a_threshold_for_another_checkpoint_switches_nothing() -> None:
    operator = Operator()
    operator.arrive(0, "2")
    operator.work()
    operator.time_out(1)
    assert operator.cuts == []
    operator.time_out(2)
    assert operator.cuts == [(2, "unaligned", "")]


def test_inflight_capture_single_channel() -> None:
    operator = Operator(config=FORCED)
    operator.arrive(1, "abc")
    operator.arrive(0, "1")
    operator.arrive(1, "d1e")
    assert operator.inflight == {0: "", 1: "abcd"}


def test_inflight_capture_multiple_channels() -> None:
    operator = Operator(4, FORCED)
    for channel, events in enumerate(("", "ab", "cd", "")):
        operator.arrive(channel, events)
    operator.arrive(0, "1x")
    operator.arrive(2, "e1y")
    operator.arrive(1, "1")
    operator.arrive(3, "f")
    assert operator.completed == []
    operator.arrive(3, "g1z")
    assert operator.inflight == {0: "", 1: "ab", 2: "cde", 3: "fg"}
    assert operator.completed == [(1, "unaligned")]


def test_captured_events_are_processed_as_well() -> None:
    """Goal: the copy is for a restore; nothing is lost or processed twice while the job runs."""
    operator = Operator(config=FORCED)
    operator.arrive(1, "ab")
    operator.arrive(0, "c1d")
    operator.arrive(1, "e1f")
    operator.work()
    assert sorted(operator.processed) == list("abcdef")


def test_late_barrier_consumed_after_snapshot() -> None:
    operator = Operator(3, FORCED)
    operator.arrive(0, "1")
    operator.arrive(1, "1")
    operator.work()
    assert len(operator.cuts) == 1
    operator.arrive(2, "1")
    operator.work()
    assert len(operator.cuts) == 1
    assert operator.completed == [(1, "unaligned")]


def test_all_late_barriers_received_resets_state() -> None:
    """Goal: the next checkpoint is not taken for a late one (ERRATA 0.3)."""
    operator = Operator(config=FORCED)
    for checkpoint_id in (1, 2, 3):
        operator.arrive(0, f"{checkpoint_id}")
        operator.arrive(1, f"a{checkpoint_id}")
        operator.work()
    assert operator.completed == [(n, "unaligned") for n in (1, 2, 3)]
    assert not operator.account.metrics().is_in_unaligned_mode


def test_events_pass_through_after_unaligned_snapshot() -> None:
    operator = Operator(config=FORCED)
    operator.arrive(0, "1ab")
    operator.arrive(1, "cd")
    operator.work()
    assert operator.account.metrics().is_in_unaligned_mode
    assert operator.processed == "abcd"
    operator.arrive(1, "e")
    operator.work()
    assert operator.processed == "abcde"


def test_inflight_buffer_size_limit() -> None:
    """Goal: over the limit the checkpoint is declined in words, and no event is dropped."""
    config = UnalignedCheckpointConfig(force_unaligned=True, max_inflight_buffer_bytes=3)
    operator = Operator(config=config)
    operator.arrive(1, "abc")
    operator.arrive(0, "1")
    assert operator.declined == []
    operator.arrive(1, "d1")
    (reason,) = operator.declined
    assert "4 bytes in flight on input 1 exceed max_inflight_buffer_bytes (3)" in reason
    operator.work()
    assert (operator.completed, operator.processed) == ([], "abcd")
    operator.arrive(0, "2")
    operator.arrive(1, "2")
    assert operator.completed == [(2, "unaligned")]


def test_the_limit_is_of_one_queue() -> None:
    config = UnalignedCheckpointConfig(force_unaligned=True, max_inflight_buffer_bytes=3)
    operator = Operator(3, config)
    operator.arrive(1, "abc")
    operator.arrive(2, "def")
    operator.arrive(0, "1")
    operator.arrive(1, "1")
    operator.arrive(2, "1")
    assert operator.completed == [(1, "unaligned")]
    assert operator.account.metrics().total_inflight_bytes == 6


def test_disabled_unaligned_stays_aligned() -> None:
    operator = Operator(config=UnalignedCheckpointConfig(enabled=False))
    operator.arrive(0, "a1b")
    operator.arrive(1, "c")
    operator.work()
    operator.time_out(1)
    operator.work()
    assert (operator.cuts, operator.processed) == ([], "ac")
    operator.arrive(1, "d1e")
    operator.work()
    assert operator.cuts == [(1, "aligned", "acd")]
    assert (operator.inflight, operator.completed) == ({}, [(1, "aligned")])


def test_metrics_count_unaligned_checkpoints() -> None:
    operator = Operator(config=FORCED)
    for checkpoint_id in (1, 2):
        operator.arrive(1, "abc")
        operator.arrive(0, f"{checkpoint_id}")
        operator.arrive(1, f"{checkpoint_id}")
        operator.work()
    metrics = operator.account.metrics()
    assert (metrics.unaligned_count, metrics.threshold_switches) == (2, 0)
    assert metrics.total_inflight_bytes == 6
    aligned = Operator()
    for channel in (0, 1):
        aligned.arrive(channel, "1")
    aligned.work()
    assert aligned.completed == [(1, "aligned")]
    assert aligned.account.metrics().unaligned_count == 0


def test_metrics_count_threshold_switches() -> None:
    operator = Operator()
    operator.arrive(0, "1")
    operator.work()
    operator.time_out(1)
    operator.arrive(1, "1")
    operator.work()
    for channel in (0, 1):
        operator.arrive(channel, "2")
    operator.work()
    operator.time_out(2)
    metrics = operator.account.metrics()
    assert (metrics.unaligned_count, metrics.threshold_switches) == (1, 1)
