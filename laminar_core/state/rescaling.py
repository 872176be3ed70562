"""The assignment of state and in-flight data when a checkpoint is restored with other parallelism.

State of an old subtask goes to new ones in one of three ways, see ``Redistribution``. Data in
flight from an old sender to an old receiver, a *virtual channel*, goes to the new receivers that
``origins_of_receiver`` returns it for; each of them keeps the rows that it owns.

Invariants, tried for all pairs of 1 to 8 workers by ``tests/state/test_rescaling.py``:
    I1  every key group of an old subtask is read by the new subtask that owns it
    I2  what is split (counters, rows of a sink, splits of a source) has one new owner
    I3  every row in flight on a keyed or rebalanced edge has one new owner

Source: PROTOCOL section 10; Flink's ``SubtaskStateMapper`` for the mapping by key-group ranges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from laminar_core.codec.key_groups import key_group_range, partition

Redistribution = Literal["keyed", "split", "union"]
"""The new subtasks that restore the state of an old one.

``keyed``: every new subtask whose key groups overlap the old one's; it filters by key group.
``split``: one new subtask, which adds up the states it receives. ``union``: all new subtasks; each
combines all states, to a minimum for example.
"""

Exchange = Literal["keyed", "rebalance", "broadcast", "forward"]
"""The rule by which an edge divides its rows."""

Own = Callable[[pa.RecordBatch], pa.RecordBatch | None]
"""Selects the rows of a batch that belong to the new receiver; None if there are none."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """The change from ``before`` to ``after`` subtasks of every operator."""

    before: int
    after: int
    max_parallelism: int

    def origins(self, redistribution: Redistribution, subtask: int) -> list[int]:
        """Return the old subtasks whose snapshots a new one continues from, ascending."""
        match redistribution:
            case "keyed":
                return [old for old in range(self.before) if self._meet(old, subtask)]
            case "split":
                return list(range(subtask, self.before, self.after))
            case "union":
                return list(range(self.before))

    def origins_of_receiver(self, exchange: Exchange, receiver: int) -> list[int]:
        """Return the old receivers whose virtual channels a new one takes over, whole or in part.

        On a broadcast or forward edge no data is in flight, because no barrier overtakes there. The
        event time of all old receivers counts, because rows of any may reach any new one.
        """
        match exchange:
            case "keyed":
                return self.origins("keyed", receiver)
            case "rebalance" if self.before >= self.after:
                return self.origins("split", receiver)
            case "rebalance":
                return [receiver % self.before]
            case "broadcast" | "forward":
                return self.origins("union", receiver)

    def owned_by(self, columns: Sequence[str], receiver: int) -> Own:
        """Return a filter for those rows of a keyed edge that ``receiver`` owns.

        The edge's partitioner decides.
        """

        def own(batch: pa.RecordBatch) -> pa.RecordBatch | None:
            parts = partition(batch, columns, self.max_parallelism, self.after)
            part = dict(parts).get(receiver)
            # It may end in state, which must not keep the memory of the other parts.
            return part if part is None or part is batch else pa.concat_batches([part])

        return own

    def dealt_to(self, receiver: int) -> Own:
        """Return a filter for batches of one virtual channel of a rebalanced edge.

        The new receivers that replace an old one get its batches in turn. Use one filter per
        virtual channel and call it for every batch.
        """
        turns = (
            1
            if self.before >= self.after
            else len(range(receiver % self.before, self.after, self.before))
        )
        mine = receiver // self.before if turns > 1 else 0
        turn = 0

        def own(batch: pa.RecordBatch) -> pa.RecordBatch | None:
            nonlocal turn
            now, turn = turn, (turn + 1) % turns
            return batch if now == mine else None

        return own

    def _meet(self, old: int, new: int) -> bool:
        was = key_group_range(old, self.max_parallelism, self.before)
        is_now = key_group_range(new, self.max_parallelism, self.after)
        return was.start < is_now.stop and is_now.start < was.stop


def deal(unread: Sequence[bool], parallelism: int, subtask: int) -> list[int]:
    """Return the positions of the splits that ``subtask`` reads; unread ones are divided evenly.

    Splits keep their order. Finished splits are assigned, too, because some subtask has to record
    them as finished in the next checkpoint.
    """
    left = [n for n, has_rows in enumerate(unread) if has_rows]
    done = [n for n, has_rows in enumerate(unread) if not has_rows]
    return sorted(left[subtask::parallelism] + done[subtask::parallelism])
