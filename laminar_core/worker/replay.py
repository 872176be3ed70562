"""What was in flight at the restored checkpoint goes first.

After a restore with another parallelism all of it waits in the queue of one channel of each edge,
whoever sent it. New rows of the same origin come on any channel of that edge, and would overtake
it. So on each edge the channels that still replay are read one after the other, in the order of
their senders, before anything new. Since the queue that was put together is that of the first
sender, this also holds for a checkpoint that is taken meanwhile, restored in whatever way.

Nothing can be held up by it for ever: what is replayed has arrived, and no barrier is before it.
"""

from collections.abc import Iterable, Sequence

from laminar_core.protocol.types import ChannelId
from laminar_core.worker.channels import InputChannel


class ReplayOrder:
    """Of one task; ``edges`` are its input channels, one group for each edge that takes part."""

    def __init__(self, edges: Iterable[Sequence[InputChannel]]) -> None:
        self._replaying = [list(channels) for channels in edges]
        self._edge_of = {c.channel: e for e, of in enumerate(self._replaying) for c in of}
        self._drop_finished()

    @property
    def active(self) -> bool:
        """Something is still to be replayed."""
        return bool(self._edge_of)

    def holds(self, channel: ChannelId) -> bool:
        """Say whether another channel of its edge goes first."""
        edge = self._edge_of.get(channel)
        return edge is not None and self._replaying[edge][0].channel != channel

    def took(self) -> bool:
        """An element was taken; say whether it was the last one of all that is replayed."""
        if not self.active:
            return False
        self._drop_finished()
        return not self.active

    def _drop_finished(self) -> None:
        self._replaying = [[c for c in of if c.replays] for of in self._replaying]
        self._edge_of = {c: e for c, e in self._edge_of.items() if self._replaying[e]}
