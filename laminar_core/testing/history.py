"""The ordered history of a job's store calls: the evidence for invariants."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from laminar_core.protocol.recovery import Base, on_timeline
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import (
    CheckpointManifest,
    CommitRecord,
    GenerationBase,
    GenerationClaim,
    Record,
    TriggerRecord,
    parse_record,
)
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.paths import number_in
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.ledger import Ledger
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.places import Place
from laminar_core.testing.simulation import JOB, Simulation

INFLIGHT_PREFERENCE = 5
"""Factor by which a checkpoint with in-flight data is preferred when one is kept."""

R = TypeVar("R", bound=Record)

_PARTS = ("/operators/", "/inflight/", "/shared/")
"""Folders of what workers write."""


@dataclass(frozen=True, slots=True)
class Write:
    """An object that came into being, or was put in place of another.

    ``order`` counts them; ``stretch``: what the writer did without letting others run.
    """

    order: int
    time_ms: float
    process: str
    verb: str
    key: str
    data: bytes
    stretch: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Store and output at the moment when a checkpoint became complete."""

    checkpoint_id: CheckpointId
    disk: SimulatedDisk
    ledgers: Mapping[str, Ledger]


@dataclass(frozen=True, slots=True)
class Facts:
    """The JSON records among the writes, in the order of their creation."""

    claims: list[tuple[int, GenerationClaim]]
    bases: list[tuple[int, GenerationBase]]
    triggers: list[tuple[int, TriggerRecord]]
    manifests: list[tuple[int, CheckpointManifest]]
    commits: list[tuple[int, CommitRecord]]


class History:
    """Watches one simulation. Make it before any disaster: it has to see calls first."""

    def __init__(
        self,
        simulation: Simulation,
        disk: SimulatedDisk,
        ledgers: Mapping[str, Ledger],
        dice: Random,
    ) -> None:
        self.writes: list[Write] = []
        self.deletions: list[str] = []
        """Problems with what was deleted, found as it happened."""
        self.lost_keys: set[str] = set()
        """Keys whose write was interrupted when the store disappeared, and landed elsewhere."""
        self.stretches_elsewhere: set[int] = set()
        """Stretches of time in which a process called another store, even if only to read."""
        self.strays: list[str] = []
        """Writes and deletions in another store that should not have happened."""
        self.cut: Cut | None = None
        """One completed checkpoint; those with something in flight are preferred."""
        self._world = simulation.world
        self._disk = disk
        self._ledgers = ledgers
        self._dice = dice
        self._weights = 0
        simulation.observers.append(self._observe)

    def _observe(self, call: StoreCall) -> None:
        if call.place is not None:
            self._elsewhere(call, call.place)
        elif call.verb == "delete" and call.moment == "before":
            self._before_deletion(call)
        elif call.moment == "after" and (call.verb == "put" or call.answer is True):
            self._written(call)
        elif call.moment == "after" and call.answer is False:
            self._world.note(call.process, f"finds {call.key} taken")

    def _elsewhere(self, call: StoreCall, place: Place) -> None:
        """Record a call to a replacement of the store.

        Workers may write parts there: parts count only if a manifest names them, and the store then
        lacks them. A process that had checked the claim just before the store disappeared may
        finish its write.
        """
        self.stretches_elsewhere.add(self._world.stretch)
        deletes = call.verb == "delete" and call.moment == "before"
        writes = call.moment == "after" and (call.verb == "put" or call.answer is True)
        if not deletes and not writes:
            return
        what = f"{'deletes' if deletes else 'writes'} {call.key} in {place.what}"
        self._world.note(call.process, what)
        is_part = any(folder in call.key for folder in _PARTS) and call.verb == "put_if_absent"
        if self._world.stretch <= place.since_stretch:
            self.lost_keys.add(call.key)
        elif not is_part:
            self.strays.append(f"{call.process} {what}")

    def _written(self, call: StoreCall) -> None:
        write = Write(
            len(self.writes),
            self._world.now_ms,
            call.process,
            call.verb,
            call.key,
            bytes(call.data),
            self._world.stretch,
        )
        self.writes.append(write)
        if not call.key.endswith(".heartbeat.json"):
            self._world.note(call.process, f"writes {call.key}")
        if call.key.endswith("/manifest.json"):
            self._keep(parse_manifest(write.data))

    def _keep(self, manifest: CheckpointManifest) -> None:
        checkpoint_id = manifest.checkpoint_id
        weight = INFLIGHT_PREFERENCE if manifest.inflight_data else 1
        self._weights += weight
        if self._dice.randrange(self._weights) < weight:
            ledgers = {name: Ledger() for name in self._ledgers}
            for name, copy in ledgers.items():
                copy.load(self._ledgers[name])
            self.cut = Cut(checkpoint_id, self._disk.copy(), ledgers)

    def _before_deletion(self, call: StoreCall) -> None:
        self._world.note(call.process, f"deletes {call.key}")
        facts = self.facts()
        bases = [
            Base(Generation(base.generation), base_id_of(base))
            for _, base in facts.bases
            if base.closed_by is None
        ]
        for _, manifest in facts.manifests:
            number = manifest.checkpoint_id
            listed = any(f"{JOB}/{file.path}" == call.key for file in manifest.files())
            readable = self._disk.size(f"{JOB}/checkpoints/{number:010}/manifest.json") is not None
            if listed and readable and on_timeline(number, Generation(manifest.generation), bases):
                self.deletions.append(f"{call.process} deletes {call.key} of checkpoint {number}")

    def facts(self) -> Facts:
        """Parse the recorded writes."""
        return Facts(
            self._records("/generations/", ".json", GenerationClaim),
            self._records("/generations/", ".base.json", GenerationBase),
            self._records("/checkpoints/", "/trigger.json", TriggerRecord),
            [
                (write.order, parse_manifest(write.data))
                for write in self.writes
                if write.key.endswith("/manifest.json")
            ],
            self._records("/commits/", ".json", CommitRecord),
        )

    def _records(self, folder: str, suffix: str, record: type[R]) -> list[tuple[int, R]]:
        found: list[tuple[int, R]] = []
        for write in self.writes:
            name = write.key.rpartition("/")[2]
            plain = suffix != ".json" or number_in(name) is not None
            if folder in write.key and write.key.endswith(suffix) and plain:
                found.append((write.order, parse_record(record, write.data)))
        return found


def base_id_of(base: GenerationBase) -> CheckpointId | None:
    """Return the checkpoint that the generation restored; None: a fresh start."""
    return base.base_checkpoint_id
