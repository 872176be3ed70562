"""One look at a stream's store: what is new there becomes events of Dagster, each one once.

The cursor says how far everything is told; it only saves work. What has been told is read from
Dagster's records, so a tick that is repeated, or that died half-way, repeats nothing.
"""

from dataclasses import dataclass, field
from typing import Annotated

import dagster as dg
from pydantic import Field, ValidationError

from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.errors import CorruptCheckpointError
from laminar_core.state.arrow_codec import sha256_hex
from laminar_core.state.drill import DrillRecord
from laminar_core.state.paths import number_in
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.drills import newest_number
from laminar_core.storage.records import read_record
from resources.names import DRILL_TAG, asset_key, checkpoint_partitions, partition_of
from resources.values import Values
from sensors.audit_follower import AuditFollower
from sensors.check_events import is_judged, judged
from sensors.checkpoint_metadata import DATA_VERSION_TAG, materialization, source_observation
from sensors.checkpoint_reports import (
    failure_observation,
    is_told,
    look_at_attempts,
)
from sensors.job_observations import Happening, deleted_checkpoints, drill_event, happenings
from sensors.output_reports import output_observation
from sensors.policy import AlertPolicy
from sensors.run_records import newest_run
from sensors.stored_checkpoints import StoredCheckpoint, read_stored

ACTS_MAX = 50
"""Audit records in one tick."""

DRILLS_MAX = 10

BESIDE_MS = 60_000
"""Between two reports of what goes with the newest checkpoint."""

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
_Number = Annotated[int, Field(ge=0)]


class ObserverCursor(Values):
    """How far everything is told of the store that ``store`` identifies."""

    store: str = ""
    generation: _Number = 0
    """All attempts of those before it are told."""
    attempt: _Number = 0
    audit: _Number = 0
    drill: _Number = 0
    completed: _Number = 0
    """The newest completed checkpoint known."""
    beside: _Number = 0
    """The newest of which also is told what goes with it."""
    beside_ms: _Number = 0
    """When that was."""

    @classmethod
    def read(cls, text: str | None, store: str) -> "ObserverCursor":
        """What an earlier tick left; from the beginning if it is of another store, or is none."""
        try:
            found = cls.model_validate_json(text or "{}")
        except ValidationError:
            found = cls()
        return found if found.store == store else cls(store=store)


@dataclass(slots=True)
class Tick:
    """What a tick has to say; filled step by step."""

    cursor: ObserverCursor
    events: list[Event] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    """To be there."""
    gone: list[str] = field(default_factory=list)
    """Partitions of checkpoints that are deleted."""
    said: list[str] = field(default_factory=list)

    def move(self, **numbers: int) -> None:
        """Set the cursor on."""
        self.cursor = self.cursor.model_copy(update=numbers)


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a store from one that was begun anew: the digest of its first claim."""

    sha256: str
    newest_generation: int
    has_started: bool
    """It is settled what the newest generation starts from, and with it its first number."""


def identity(store: CheckpointStore) -> Identity | None:
    """Which store it is; None: nothing ever ran in it.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    names = store.objects.children(store.paths.generations)
    numbers = [number for name in names if (number := number_in(name)) is not None]
    if not numbers:
        return None
    first = store.objects.get(store.paths.claim(Generation(min(numbers))))
    newest = Generation(max(numbers))
    has_started = store.paths.base(newest).removeprefix(store.paths.generations) in names
    return Identity(sha256_hex(first or b"")[:16], newest, has_started)


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at one stream for one tick."""

    instance: dg.DagsterInstance
    store: CheckpointStore
    policy: AlertPolicy
    now_ms: int
    identity: Identity
    supervisor: str | None = None
    """The run that tells of completed checkpoints itself."""

    def look(self, cursor: ObserverCursor) -> Tick:
        """Find what is new, bounded.

        Raises:
            StorageUnavailable: the store did not answer; nothing is lost, look again.
        """
        tick = Tick(cursor)
        self._attempts(tick)
        self._beside(tick)
        self._acts(tick)
        self._drills(tick)
        return tick

    # --- checkpoints ----------------------------------------------------------------------------

    def _attempts(self, tick: Tick) -> None:
        supervised = self.supervisor is not None
        if supervised:
            tick.said.append(f"run {self.supervisor} reports its checkpoints itself")
        try:
            found = look_at_attempts(
                self.instance,
                self.store,
                tick.cursor.attempt,
                is_supervised=supervised,
                is_same_generation=tick.cursor.generation == self.identity.newest_generation,
            )
        except CorruptCheckpointError as error:
            tick.said.append(f"which checkpoints count is unknown: {error}")
            return
        tick.events += [materialization(self.store, each) for each in found.completed]
        tick.events += [failure_observation(self.store.job, failed) for failed in found.failed]
        tick.partitions += found.partitions
        tick.said += found.sentences()
        tick.move(attempt=found.settled_id)
        if self.identity.has_started and not found.more:
            tick.move(generation=self.identity.newest_generation)
        if found.newest is not None:
            newest = found.newest.manifest.checkpoint_id
            tick.move(completed=max(newest, tick.cursor.completed))

    def _beside(self, tick: Tick) -> None:
        """What goes with the newest checkpoint: positions, visible output, verdicts.

        Not more often than ``BESIDE_MS``: together they cost more than the checkpoint itself.
        """
        newest, passed_ms = tick.cursor.completed, self.now_ms - tick.cursor.beside_ms
        if newest <= tick.cursor.beside or 0 <= passed_ms < BESIDE_MS:
            return
        stored = self._stored(newest)
        if stored is None:  # Deleted meanwhile.
            tick.move(beside=newest)
            return
        output = output_observation(self.store, stored)
        for event in (source_observation(self.store, stored), output):
            if event is not None and not self._is_told(event):
                tick.events.append(event)
        self._judge(tick, stored)
        if output is not None:  # Else it is not committed yet: look again.
            tick.move(beside=newest, beside_ms=self.now_ms)

    def _judge(self, tick: Tick, stored: StoredCheckpoint) -> None:
        checkpoint_id = stored.manifest.checkpoint_id
        if is_judged(self.instance, self.store.job, checkpoint_id):
            return
        verdicts = judged(self.store, stored, self.policy)
        tick.events += verdicts
        failed = [each.description for each in verdicts if not each.passed]
        tick.said += [f"checkpoint {checkpoint_id}: {problem}" for problem in failed]

    def _stored(self, checkpoint_id: int) -> StoredCheckpoint | None:
        found = read_stored(self.store, CheckpointId(checkpoint_id))
        return found if isinstance(found, StoredCheckpoint) else None

    # --- the job --------------------------------------------------------------------------------

    def _acts(self, tick: Tick) -> None:
        told: list[str] = []
        for number, audited in AuditFollower(self.store).after(tick.cursor.audit, ACTS_MAX):
            tick.move(audit=number)
            if audited is None:
                continue
            for each in happenings(self.store, audited):
                if not self._is_shown(each):
                    tick.events.append(each.event)
                    told.append(each.event.description or each.asset)
            tick.gone += [
                partition_of(checkpoint_id)
                for checkpoint_id in deleted_checkpoints(audited)
                if not self.store.is_complete(CheckpointId(checkpoint_id))
            ]
        if told:
            more = f" and {len(told) - 1} more" if len(told) > 1 else ""
            tick.said.append(f"{told[-1]}{more}")

    def _is_shown(self, happening: Happening) -> bool:
        run_id = happening.told_by
        if run_id is not None and self.instance.has_run(run_id):
            return True
        return self._is_told(happening.event)

    def _is_told(self, event: dg.AssetMaterialization | dg.AssetObservation) -> bool:
        version = (event.tags or {})[DATA_VERSION_TAG]
        return is_told(self.instance, event.asset_key, version)

    def _drills(self, tick: Tick) -> None:
        newest, first = newest_number(self.store), tick.cursor.drill + 1
        if newest < first:
            return
        run = newest_run(self.instance, self.store.job, "drill", self.now_ms)
        if run is not None and run.in_progress:
            tick.said.append(f"run {run.run_id} drills, and tells of it itself")
            return
        shown = self._shown_drills()
        for number in range(first, min(newest, first + DRILLS_MAX - 1) + 1):
            tick.move(drill=number)
            event = self._drill_event(number)
            if event is not None and str(number) not in shown and not self._is_told(event):
                tick.events.append(event)
                tick.said.append(f"{event.description}")

    def _drill_event(self, number: int) -> dg.AssetObservation | None:
        key = self.store.paths.drill(number)
        try:
            record = read_record(self.store.objects, key, DrillRecord)
        except CorruptCheckpointError:
            return None
        if record is None:
            return None
        return drill_event(self.store.job, record, sha256_hex(record.to_bytes()))

    def _shown_drills(self) -> set[str]:
        """Drills that the newest runs of this Dagster have shown."""
        key = asset_key(self.store.job, "drill")
        records = self.instance.fetch_materializations(key, limit=2 * DRILLS_MAX).records
        shown = (record.asset_materialization for record in records)
        return {(each.tags or {}).get(DRILL_TAG, "") for each in shown if each is not None}


def partition_requests(
    instance: dg.DagsterInstance, stream: str, tick: Tick
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Partitions that are to be added, and those that are to go and are there."""
    partitions = checkpoint_partitions(stream)
    assert partitions.name is not None
    gone = set(tick.gone)
    added = [key for key in tick.partitions if key not in gone]
    found: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if added:
        found.append(partitions.build_add_request(added))
    there = [key for key in sorted(gone) if instance.has_dynamic_partition(partitions.name, key)]
    if there:
        found.append(partitions.build_delete_request(there))
    return found
