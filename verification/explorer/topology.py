"""A small world as a value: its connections, its data, and its possible events."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from laminar_core.protocol.types import ChannelId

AlignmentTimeout = int | None
"""As in ``CoordinatorConfig``; only None, 0 and positive differ."""


def _everything(path: str) -> bool:
    return bool(path)


@dataclass(frozen=True)
class Node:
    """One subtask: a source if it has records, else an operator."""

    name: str
    record_count: int | None = None
    sink: bool = False
    keeps_path: bool = False
    """True: records go on under the path they came with. Else the name is appended."""
    timed: bool = False
    """A source that sends event time behind each record: the number of the next one."""
    input_names: tuple[str, ...] = ()
    """The first letter of the paths on each input, if its operator has several."""

    def rename(self, path: str) -> str:
        """Return the path of records of ``path`` after this node."""
        return path if self.keeps_path else path + self.name


@dataclass(frozen=True)
class Link:
    """One channel, from one node to another."""

    sender: str
    receiver: str
    may_overtake: bool = True
    feedback: bool = False
    feeds: int = 0
    """The input of the receiver's operator that it feeds."""
    accepts: Callable[[str], bool] = _everything
    """Selects the paths that go this way."""


@dataclass(frozen=True)
class World:
    """A small world to explore. Budgets limit how often events may happen, at any moment."""

    name: str
    what: str
    """Short description for the list of worlds."""
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    alignment_timeout_ms: AlignmentTimeout = 1
    checkpoints: int = 1
    """Triggers, over all lives of the job."""
    crashes: int = 0
    expiries: int = 0
    """Checkpoints that the coordinator gives up."""
    failures: int = 0
    """Number of parts that cannot be written."""
    credits: int = 1
    """Batches of a channel that may be under way or queued at the receiver; the rest waits in the
    output queue."""
    ends: bool = True
    """False: the sources are silent after their records, and nothing ever finishes."""
    latency: bool = True
    """False: what leaves an output queue is in the input queue at once, as inside of a worker."""

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each node."""
        return {node.name: position for position, node in enumerate(self.nodes)}

    def inputs_of(self, name: str) -> list[tuple[ChannelId, int, Link]]:
        """Return (channel, position of the link, link); channels are numbered from 0."""
        into = [(n, link) for n, link in enumerate(self.links) if link.receiver == name]
        return [(ChannelId(c), n, link) for c, (n, link) in enumerate(into)]

    def outputs_of(self, name: str) -> list[tuple[int, Link]]:
        """Return (position of the link, link), in the order of output numbers."""
        return [(n, link) for n, link in enumerate(self.links) if link.sender == name]

    def variant(self, name: str, what: str, **changes: Any) -> "World":  # noqa: ANN401 - fields
        """Return the world with these fields changed."""
        return replace(self, name=name, what=what, **changes)

    def sent(self, link: Link, counts: dict[str, int], offset: int | None) -> dict[str, int]:
        """Return the number of records per path that the sender has put on the link."""
        sender = self.nodes[self.index[link.sender]]
        if sender.record_count is not None:
            passed = {sender.name: offset} if offset else {}
        else:
            passed = {sender.rename(path): n for path, n in counts.items() if n}
        return {path: n for path, n in passed.items() if link.accepts(path)}

    @cached_property
    def answer(self) -> dict[str, dict[str, int]]:
        """Return the final counts of each node, computed in sequence, without any channel."""
        seen: dict[str, dict[str, int]] = {node.name: {} for node in self.nodes}
        while True:
            before = {name: dict(counts) for name, counts in seen.items()}
            for link in self.links:
                count = self.nodes[self.index[link.sender]].record_count
                seen[link.receiver] |= self.sent(link, seen[link.sender], count)
            if seen == before:
                return seen
