"""Who continues what when a checkpoint is restored with another number of workers: arithmetic.

What an old subtask kept goes to new ones in one of three ways, see ``Redistribution``. What was in
flight from an old sender to an old receiver, a *virtual channel*, goes to the new receivers that
``origins_of_receiver`` names it for; each of them keeps the rows that are its own.

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
"""Who restores what an old subtask kept.

``keyed``: every new subtask whose key groups meet the old one's, which filters by key group.
``split``: one new subtask; it adds up what it is given.
``union``: all of them; each makes of all that was kept what it starts from, a minimum say.
"""

Exchange = Literal["keyed", "rebalance", "broadcast", "forward"]
"""How an edge divides its rows."""

Own = Callable[[pa.RecordBatch], pa.RecordBatch | None]
"""The rows of a batch that are the new receiver's; None if there are none."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """From ``before`` subtasks of every operator to ``after``."""

    before: int
    after: int
    max_parallelism: int

    def origins(self, redistribution: Redistribution, subtask: int) -> list[int]:
        """Old subtasks whose snapshots a new one continues from, ascending."""
        match redistribution:
            case "keyed":
                return [old for old in range(self.before) if self._meet(old, subtask)]
            case "split":
                return list(range(subtask, self.before, self.after))
            case "union":
                return list(range(self.before))

    def origins_of_receiver(self, exchange: Exchange, receiver: int) -> list[int]:
        """Old receivers whose virtual channels a new one takes over, whole or in part.

        Nothing is in flight on a broadcast or forward edge, because no barrier overtakes there.
        Event time of all of them counts, because rows of any may come to any.
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
        """The rows of a keyed edge that are ``receiver``'s: the partitioner of the edge decides."""

        def own(batch: pa.RecordBatch) -> pa.RecordBatch | None:
            parts = partition(batch, columns, self.max_parallelism, self.after)
            return dict(parts).get(receiver)

        return own

    def dealt_to(self, receiver: int) -> Own:
        """The batches of one virtual channel of a rebalanced edge that are ``receiver``'s.

        The new receivers that take over from one old one get its batches in turn. One function per
        virtual channel, which has to be asked for every batch.
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
    """Positions of the splits that ``subtask`` reads: those with rows left are dealt out evenly.

    Splits keep their order. Those that are read to their end are dealt out, too: somebody has to
    say in the next checkpoint that they are.
    """
    left = [n for n, has_rows in enumerate(unread) if has_rows]
    done = [n for n, has_rows in enumerate(unread) if not has_rows]
    return sorted(left[subtask::parallelism] + done[subtask::parallelism])
