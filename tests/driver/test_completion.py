"""The event of a completed checkpoint says what its manifest says."""

from laminar_core.driver.completion import (
    CHANNELS_MAX,
    bytes_by_operator,
    completed_event,
    slowest_channels,
)
from laminar_core.driver.events import ChannelWait, OperatorBytes
from laminar_core.protocol.coordinator_events import Outcome, RecordOutcome
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from laminar_core.records.channel_entries import AlignmentEntry, ChannelAlignment
from tests.records.manifests import alignment, manifest, subtask


def channel(sender: int, barrier_ms: float | None) -> ChannelAlignment:
    return ChannelAlignment(input_id=sender, upstream="in", sender=sender, barrier_ms=barrier_ms)


def aligned(subtask_index: int, *channels: ChannelAlignment) -> AlignmentEntry:
    return alignment(
        vertex_id="sums", subtask_index=subtask_index, slowest_channels=channels, start_delay_ms=3
    )


def wait(sender: int, barrier_ms: float) -> ChannelWait:
    return ChannelWait(vertex_id="sums", upstream="in", sender=sender, barrier_ms=barrier_ms)


def test_a_channel_is_as_slow_as_at_its_slowest_receiver() -> None:
    entries = [aligned(0, channel(1, 50), channel(0, 10)), aligned(1, channel(1, 70))]
    assert slowest_channels(entries) == (wait(1, 70), wait(0, 10))


def test_a_channel_that_was_overtaken_has_no_wait() -> None:
    assert slowest_channels([aligned(0, channel(1, None))]) == ()


def test_only_the_slowest_channels_are_listed() -> None:
    entries = [aligned(n, channel(n, n)) for n in range(100)]
    found = slowest_channels(entries)
    assert len(found) == CHANNELS_MAX
    assert found[0] == wait(99, 99)


def test_the_part_of_an_operator_is_summed_over_its_workers() -> None:
    parts = (subtask("sums", 0), subtask("sums", 1))
    entries = [part.model_copy(update={"written_bytes": 6}) for part in parts]
    size_bytes = sum(entry.size_bytes for entry in entries)
    expected = {"sums": OperatorBytes(size_bytes=size_bytes, written_bytes=12)}
    assert bytes_by_operator(entries) == expected


def test_the_event_has_the_numbers_of_the_manifest() -> None:
    made = manifest(alignment=(alignment(start_delay_ms=42.0, alignment_ms=7.0),))
    effect = RecordOutcome(
        CheckpointId(made.checkpoint_id),
        CheckpointKind.PERIODIC,
        Outcome.COMPLETED,
        "",
        triggered_ms=100,
        ended_ms=350,
    )
    event = completed_event(effect, made, 5)
    assert (event.duration_ms, event.start_delay_ms, event.alignment_ms) == (250, 42, 7)
    assert (event.checkpoint_id, event.generation) == (made.checkpoint_id, made.generation)
    assert (event.size_bytes, event.mode) == (made.size_bytes, made.mode)
    assert sum(part.size_bytes for part in event.operators.values()) == made.size_bytes
