"""How an edge divides rows among subtasks, and whether barriers may overtake on it."""

from enum import StrEnum


class PartitioningKind(StrEnum):
    """The rule by which an edge chooses the receiving subtasks of a row."""

    FORWARD = "forward"
    """Subtask i sends to subtask i only."""
    KEYED = "keyed"
    """The subtask that owns the key group of the row."""
    REBALANCE = "rebalance"
    """Whole batches, round robin over all subtasks."""
    BROADCAST = "broadcast"
    """Every subtask receives every row."""


_DIVISIBLE = {PartitioningKind.KEYED, PartitioningKind.REBALANCE}


def may_overtake(partitioning: PartitioningKind, loop: str | None) -> bool:
    """Return whether an unaligned barrier may overtake the data on such an edge.

    Rows that wait on a broadcast or pointwise edge could not be divided among other subtasks
    (PROTOCOL sections 7 and 10). Inside a loop, a barrier that comes back has to prove that
    everything sent before it has come back, too (PROTOCOL section 8). ``loop`` names the loop that
    both ends are in.
    """
    return loop is None and partitioning in _DIVISIBLE
