"""A transactional sink in memory, with a record of its calls.

The ledger is external to the job: it outlives workers, drivers and generations. Rows are staged by
writers, become visible by commits, and can be withdrawn; committing twice changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pyarrow as pa

from laminar_core.connectors.outlook import Committable, Committed, Lost, Outlook, Promise
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import (
    ANY_MODE,
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.store.staging import StagingArea

LedgerVerb = Literal[
    "stage",
    "take_over",
    "outlook",
    "commit",
    "publish",
    "last_committed",
    "withdraw_after",
    "discard_uncommitted",
]
"""``publish`` is one part that becomes visible, in the midst of a commit."""
Moment = Literal["before", "after"]


def _unobserved(verb: LedgerVerb, moment: Moment) -> None:
    del verb, moment


@dataclass(slots=True)
class Ledger:
    """Staged and visible output; a part is what one subtask wrote in one interval."""

    staged: dict[str, list[pa.RecordBatch]] = field(default_factory=dict[str, list[pa.RecordBatch]])
    visible: dict[str, list[pa.RecordBatch]] = field(
        default_factory=dict[str, list[pa.RecordBatch]]
    )
    """The rows visible to a reader that ignores commits, as in a plain directory."""
    commits: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """By checkpoint, the parts of its commit; they were visible before they were listed."""
    intervals: dict[str, int] = field(default_factory=dict[str, int])
    """By part, the first checkpoint that contains its rows."""
    observe: Callable[[LedgerVerb, Moment], None] = _unobserved
    """Called before and after every call; may raise to make it fail, or to lose its answer."""

    def rows(self) -> list[dict[str, object]]:
        """Return all committed rows, in the order of commits."""
        return [
            row
            for _, names in sorted(self.commits.items())
            for name in names
            for batch in self.visible[name]
            for row in batch.to_pylist()
        ]

    def load(self, other: "Ledger") -> None:
        """Become a copy of ``other``, without its observer."""
        self.staged, self.visible = dict(other.staged), dict(other.visible)
        self.commits = {checkpoint: list(names) for checkpoint, names in other.commits.items()}
        self.intervals = dict(other.intervals)

    @contextmanager
    def observed(self, verb: LedgerVerb) -> Iterator[None]:
        """Report one call to the observer."""
        self.observe(verb, "before")
        yield
        self.observe(verb, "after")


@dataclass(frozen=True, slots=True)
class LedgerSink:
    """Writes to ``ledger``, exactly once."""

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    """Rows stay in the order in which they became visible, updates of a key too."""
    ledger: Ledger
    name: str = "ledger"

    def describe(self) -> JsonObject:
        """Return the name of the ledger."""
        return {"connector": "ledger", "name": self.name}

    def check(self, schema: pa.Schema, promise: Promise | None = None) -> Sequence[str]:
        """Accept any schema."""
        del schema, promise
        return ()

    def open(self, context: SubtaskContext, schema: pa.Schema) -> "LedgerWriter":
        """Start staging."""
        del schema
        return LedgerWriter(self.ledger, context)

    def committer(self, staging: StagingArea | None = None) -> "LedgerCommitter":
        """Return the committer; parts are staged in the ledger itself."""
        del staging
        return LedgerCommitter(self.ledger)


class LedgerWriter:
    """One subtask. A part is named after who wrote it, so no restart uses a name again."""

    def __init__(self, ledger: Ledger, context: SubtaskContext) -> None:
        self._ledger = ledger
        self._prefix = f"{context.generation}-{context.subtask_index}"
        self._generation = context.generation
        self._sequence = 0
        self._batches: list[pa.RecordBatch] = []
        self.closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows until the next snapshot."""
        self._batches.append(batch)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows; staging them is left to the asynchronous phase."""
        batches, self._batches = self._batches, []
        if not batches:
            return Snapshot
        name = f"{self._prefix}-{self._sequence}"
        self._sequence += 1
        part: JsonObject = {
            "name": name,
            "checkpoint_id": checkpoint_id,
            "generation": self._generation,
        }

        def stage() -> Snapshot:
            with self._ledger.observed("stage"):
                self._ledger.staged[name] = batches
                self._ledger.intervals[name] = checkpoint_id
            return Snapshot(committables=(part,))

        return stage

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer handles pre-committed rows."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return nothing: the rows are in the ledger."""
        return ()

    def close(self) -> None:
        """Drop rows that are not staged."""
        self._batches = []
        self.closed = True


@dataclass(frozen=True, slots=True)
class LedgerCommitter:
    """Makes parts visible, and takes them back."""

    ledger: Ledger

    @property
    def repeat(self) -> Literal["withdrawn"]:
        """Say that output is withdrawn before it is produced again."""
        return "withdrawn"

    def take_over(self, generation: Generation) -> None:
        """Do nothing: what an older generation commits is harmless until it is discarded."""
        del generation
        with self.ledger.observed("take_over"):
            pass

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Make the parts visible that no commit up to this one has made visible.

        Raises:
            CorruptCheckpointError: a part is neither staged nor visible.
        """
        ledger = self.ledger
        with ledger.observed("commit"):
            ours = self._unlisted(checkpoint_id, committables)
            if gone := self._gone(ours):
                raise CorruptCheckpointError(ErrorCode.TRANSACTION_LOST, _lost(gone, checkpoint_id))
            for name in ours:
                if name in ledger.staged:
                    with ledger.observed("publish"):
                        ledger.visible[name] = ledger.staged.pop(name)
            if ours:
                ledger.commits.setdefault(checkpoint_id, []).extend(ours)

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Return whether a commit of the parts would succeed."""
        with self.ledger.observed("outlook"):
            ours = self._unlisted(checkpoint_id, committables)
            if not ours:
                return Committed()
            gone = self._gone(ours)
            if not gone:
                return Committable()
            parts = [part for part in committables if part["name"] in gone]
            return Lost(0, _lost(gone, checkpoint_id), parts)

    def _unlisted(
        self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]
    ) -> list[str]:
        """Names of the parts that no commit up to this one has listed."""
        names = [str(part["name"]) for part in committables]
        commits = self.ledger.commits
        listed = {n for c, ns in commits.items() if c <= checkpoint_id for n in ns}
        return [name for name in dict.fromkeys(names) if name not in listed]

    def _gone(self, names: Sequence[str]) -> list[str]:
        """The parts that are neither staged nor visible."""
        there = self.ledger.staged.keys() | self.ledger.visible.keys()
        return [name for name in names if name not in there]

    def last_committed(self) -> CheckpointId | None:
        """Return the newest checkpoint with visible output, listed or not."""
        with self.ledger.observed("last_committed"):
            shown = [self.ledger.intervals.get(name, 0) for name in self.ledger.visible]
            return CheckpointId(max([*self.ledger.commits, *shown], default=0)) or None

    def withdraw_after(self, checkpoint_id: CheckpointId, generation: Generation) -> None:
        """Take back what later checkpoints of older generations made visible, listed or not."""
        ledger = self.ledger
        with ledger.observed("withdraw_after"):
            for later in [c for c in ledger.commits if c > checkpoint_id]:
                if all(_generation_of(name) < generation for name in ledger.commits[later]):
                    del ledger.commits[later]
            # A checkpoint may carry the output of an older one, which is committed itself.
            kept = {name for names in ledger.commits.values() for name in names}
            for name in ledger.visible.keys() - kept:
                is_later = ledger.intervals.get(name, 0) > checkpoint_id
                if is_later and _generation_of(name) < generation:
                    del ledger.visible[name]

    def discard_uncommitted(self, generation: Generation) -> None:
        """Forget what older generations staged."""
        with self.ledger.observed("discard_uncommitted"):
            for name in [n for n in self.ledger.staged if _generation_of(n) < generation]:
                del self.ledger.staged[name]


def _generation_of(part: str) -> int:
    return int(part.partition("-")[0])


def _lost(gone: Sequence[str], checkpoint_id: CheckpointId) -> str:
    return (
        f"part {gone[0]} of checkpoint {checkpoint_id} is gone: restore an older checkpoint, from "
        "which its rows are produced again"
    )
