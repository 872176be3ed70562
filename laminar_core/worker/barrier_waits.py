"""How long the barriers of a task's newest checkpoint were under way: the alignment, by channel."""

from collections.abc import Iterable, Mapping

from laminar_core.host.clock import Clock
from laminar_core.protocol.types import NO_CHECKPOINT, ChannelId, CheckpointId
from laminar_core.records.channel_entries import SLOWEST_CHANNELS_MAX, ChannelAlignment


class BarrierWaits:
    """The times of one task. Alignment is counted from the first barrier's arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first_barrier = (NO_CHECKPOINT, 0.0)
        """(id, monotonic ms) of the first barrier of the newest checkpoint."""
        self._barriers_reached: dict[ChannelId, float] = {}
        """Milliseconds from that barrier's arrival until its checkpoint's was reached here."""

    def arrived(self, checkpoint_id: CheckpointId, newest_id: CheckpointId) -> None:
        """Note a barrier. ``newest_id``: the newest checkpoint for which the task has cut."""
        if checkpoint_id > max(self._first_barrier[0], newest_id):
            self._first_barrier = (checkpoint_id, self._clock.monotonic_ms())
            self._barriers_reached = {}

    def reached(self, channel: ChannelId, checkpoint_id: CheckpointId) -> None:
        """Note that everything before a barrier of this channel has been processed."""
        first_id, first_ms = self._first_barrier
        if checkpoint_id == first_id:
            self._barriers_reached[channel] = self._clock.monotonic_ms() - first_ms

    def waited_ms(self, checkpoint_id: CheckpointId, now_ms: float) -> float:
        """Return how long ago the first barrier of this checkpoint came; 0 if none has come."""
        first_id, first_ms = self._first_barrier
        return now_ms - first_ms if first_id == checkpoint_id else 0.0

    def slowest_channels(
        self,
        checkpoint_id: CheckpointId,
        awaited: Iterable[ChannelId],
        senders: Mapping[ChannelId, tuple[str, int]],
    ) -> tuple[ChannelAlignment, ...]:
        """Return the last ones to bring the barrier; those that the cut overtook have not yet."""
        if self._first_barrier[0] != checkpoint_id:
            return ()
        found = {
            channel: self._barriers_reached.get(channel)
            for channel in awaited
            if channel in senders
        }
        slowest = sorted(found, key=lambda c: (found[c] is not None, -(found[c] or 0.0), c))
        return tuple(
            ChannelAlignment(
                input_id=channel,
                upstream=senders[channel][0],
                sender=senders[channel][1],
                barrier_ms=found[channel],
            )
            for channel in slowest[:SLOWEST_CHANNELS_MAX]
        )
