"""Order the replay of restored in-flight data before new rows.

After a restore with another parallelism all of it waits in the queue of one channel of each edge,
of any sender. New rows of the same origin come on any channel of that edge, and would overtake
it. So on each edge the channels that still replay are read one after the other, in the order of
their senders, before any new row. The combined queue is the first sender's, so the order also holds
for a checkpoint that is taken meanwhile, however it is restored.

The replay cannot block for ever: its elements have arrived, and no barrier is before them.
"""

from collections.abc import Iterable, Sequence

from laminar_core.protocol.types import ChannelId
from laminar_core.worker.channels import InputChannel


class ReplayOrder:
    """The replay of one task.

    ``edges`` are its input channels, one group per participating edge.
    """

    def __init__(self, edges: Iterable[Sequence[InputChannel]]) -> None:
        self._replaying = [list(channels) for channels in edges]
        self._edge_of = {c.channel: e for e, of in enumerate(self._replaying) for c in of}
        self._drop_finished()

    @property
    def active(self) -> bool:
        """Whether restored elements are left."""
        return bool(self._edge_of)

    def holds(self, channel: ChannelId) -> bool:
        """Return whether another channel of its edge goes first."""
        edge = self._edge_of.get(channel)
        return edge is not None and self._replaying[edge][0].channel != channel

    def took(self) -> bool:
        """Note that an element was taken; return whether it was the last one of the replay."""
        if not self.active:
            return False
        self._drop_finished()
        return not self.active

    def _drop_finished(self) -> None:
        self._replaying = [[c for c in of if c.replays] for of in self._replaying]
        self._edge_of = {c: e for c, e in self._edge_of.items() if self._replaying[e]}
