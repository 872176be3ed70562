"""A topic in memory: a target that never takes rows back, with transactions, fencing and a marker.

It behaves like a broker. The last driver to take it over is the only one that can write, even if
that is an old one that slept. Readers see committed transactions only. ``TopicSink`` publishes rows
that waited in the checkpoint store, and keeps its marker in the same transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from laminar_core.connectors.outlook import Committed, Outlook, Promise
from laminar_core.connectors.staged_rows import StagedRows, outlook_of, parts_after
from laminar_core.errors import ErrorCode, FencedError
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.store.staging import StagingArea

TopicStep = Literal[
    "stage",
    "looked",
    "take_over",
    "last_committed",
    "outlook",
    "commit",
    "marker-read",
    "begun",
    "half-written",
    "written",
    "marker-set",
    "published",
    "discard_uncommitted",
]
"""The steps of writer and committer; the observer is called when each of them is done."""

STEPS: tuple[TopicStep, ...] = (
    "looked",
    "take_over",
    "commit",
    "marker-read",
    "begun",
    "half-written",
    "written",
    "marker-set",
    "published",
    "discard_uncommitted",
)
"""Steps of the committer that change the topic, or rely on what they saw of it."""

Flaw = Literal["none", "no-marker", "marker-outside", "looks-before-it-fences"]
"""Mistakes that a test of sinks has to find: no marker in the target; a marker that is written
after the rows, in a transaction of its own; a marker that is read before the take-over."""


def _unobserved(step: TopicStep) -> None:
    del step


@dataclass(slots=True)
class Topic:
    """Committed rows, the marker, and at most one open transaction."""

    committed: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])
    marker: CheckpointId | None = None
    epoch: int = 0
    """Counts the take-overs; only the holder of the newest epoch can write."""
    open_rows: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])
    open_marker: CheckpointId | None = None
    observe: Callable[[TopicStep], None] = _unobserved
    """Called after every step; may raise to make it fail after it was done."""

    def rows(self) -> list[dict[str, object]]:
        """Return all rows that readers see, in the order of their commits."""
        return [row for batch in self.committed for row in batch.to_pylist()]

    def take_over(self) -> int:
        """Fence every other producer and abort what it left open; return the new epoch."""
        self.epoch += 1
        self.open_rows, self.open_marker = [], None
        return self.epoch

    def require(self, epoch: int) -> None:
        """Refuse a producer that was fenced.

        Raises:
            FencedError: another driver took over since.
        """
        if epoch != self.epoch:
            raise FencedError(ErrorCode.FENCED, f"epoch {epoch} is fenced by {self.epoch}")

    def publish(self) -> None:
        """Commit the open transaction: rows and marker at once."""
        self.committed += self.open_rows
        if self.open_marker is not None:
            self.marker = self.open_marker
        self.open_rows, self.open_marker = [], None


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Writes to ``topic``, exactly once, unless ``flaw`` says otherwise."""

    topic: Topic
    name: str = "topic"
    flaw: Flaw = "none"

    def describe(self) -> JsonObject:
        """Return the name of the topic."""
        return {"connector": "topic", "name": self.name}

    def check(self, schema: pa.Schema, promise: Promise) -> Sequence[str]:
        """Accept any schema."""
        del schema, promise
        return ()

    def open(self, context: SubtaskContext, schema: pa.Schema) -> "TopicWriter":
        """Start collecting the rows of an interval."""
        return TopicWriter(self.topic, context, schema)

    def committer(self, staging: StagingArea) -> "TopicCommitter":
        """Return the committer, which reads staged rows from ``staging``."""
        return TopicCommitter(self.topic, staging, self.flaw)


class TopicWriter(StagedRows):
    """One subtask: the rows of an interval wait in the checkpoint store."""

    def __init__(self, topic: Topic, context: SubtaskContext, schema: pa.Schema) -> None:
        super().__init__(context, schema)
        self._topic = topic

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows; staging them is left to the asynchronous phase."""
        pending = super().snapshot(checkpoint_id)

        def stage() -> Snapshot:
            snapshot = pending()
            if snapshot.committables:
                self._topic.observe("stage")
            return snapshot

        return stage


class TopicCommitter:
    """Publishes staged rows in one transaction, together with the marker."""

    def __init__(self, topic: Topic, staging: StagingArea, flaw: Flaw = "none") -> None:
        self._topic = topic
        self._staging = staging
        self._flaw: Flaw = flaw
        self._epoch = 0
        self._seen: CheckpointId | None = None

    @property
    def repeat(self) -> Literal["visible"]:
        """Say that readers would see rows twice."""
        return "visible"

    def take_over(self, generation: Generation) -> None:
        """Fence every other producer; what was looked at before counts only with a flaw."""
        del generation
        self._seen = self._topic.marker
        self._topic.observe("looked")
        self._epoch = self._topic.take_over()
        self._topic.observe("take_over")

    def last_committed(self) -> CheckpointId | None:
        """Return the marker."""
        self._topic.observe("last_committed")
        return self._topic.marker

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Return whether the rows are published, or wait in the store."""
        del checkpoint_id
        self._topic.observe("outlook")
        newer = parts_after(self._topic.marker, committables)
        if not newer:
            return Committed()
        return outlook_of(newer, self._staging)

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Publish what is newer than the marker.

        Raises:
            FencedError: another driver has taken over since.
            StorageUnavailable: as the observer decides.
        """
        topic = self._topic
        self._step("commit")
        marker = self._seen if self._flaw == "looks-before-it-fences" else topic.marker
        if self._flaw == "no-marker":
            marker = None
        self._step("marker-read")
        newer = parts_after(marker, committables)
        if not newer:
            return
        topic.open_rows, topic.open_marker = [], None
        self._step("begun")
        batches = [batch for part in newer for batch in part.batches(self._staging)]
        for number, batch in enumerate(batches):
            if number == len(batches) // 2:
                self._step("half-written")
            topic.open_rows.append(batch)
        self._step("written")
        if self._flaw in ("none", "looks-before-it-fences"):
            topic.open_marker = checkpoint_id
        self._step("marker-set")
        topic.publish()
        self._seen = checkpoint_id
        topic.observe("published")
        if self._flaw == "marker-outside":
            topic.require(self._epoch)
            topic.marker = checkpoint_id

    def discard_uncommitted(self, generation: Generation) -> None:
        """Do nothing: the take-over has aborted what was open."""
        del generation
        self._topic.observe("discard_uncommitted")

    def _step(self, step: TopicStep) -> None:
        self._topic.require(self._epoch)
        self._topic.observe(step)
        self._topic.require(self._epoch)
