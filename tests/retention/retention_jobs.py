"""Stores with a past: generations, forks, shared files, left-overs, damage; built step by step."""

import hashlib
from random import Random

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.records.manifest import CheckpointManifest, HistoryRecord, Outcome
from laminar_core.records.record import FileRef
from laminar_core.records.retention import (
    PinRecord,
    PlannedCheckpoint,
    RetentionPlanRecord,
)
from laminar_core.records.segment import SegmentRef
from laminar_core.retention.facts import DAY_MS, HOUR_MS, RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins
from tests.records.manifests import manifest, subtask
from tests.store.stores import claim, commit, damage, trigger

JOB = "payments"
START_MS = 1_700_000_000_000
ME = Actor("me", reason="to test")
LAST = RetentionPolicy(keep_last=1)


class StoredJob:
    """A job whose operator ``window`` writes increments, and full state now and then."""

    def __init__(self, objects: ObjectStore | None = None) -> None:
        self.store = CheckpointStore(objects or MemoryObjectStore(), JOB)
        self.store.objects.create()
        self.generation = Generation(0)
        self.chain: list[SegmentRef] = []
        self.clock_ms = START_MS
        self.number = 0
        self._sequence = 0
        self._parent: int | None = None

    def names(self, folder: str) -> list[str]:
        """The objects of a folder of the job, without its path."""
        prefix = f"{JOB}/{folder}/"
        return [key.removeprefix(prefix) for key in self.store.objects.list(prefix)]

    # --- what a driver does ---------------------------------------------------------------------

    def start(self, base: int | None = None) -> None:
        """A new generation takes over and starts from ``base``."""
        self.generation = claim(self.store, base)
        self._parent = base
        self._sequence = 0
        found = None if base is None else self.store.manifests.find(CheckpointId(base))
        self.chain = [] if found is None else list(found.subtasks[0].segments[1:])

    def complete(
        self,
        *,
        committed: bool = True,
        forget: int = 0,
        kind: CheckpointKind = CheckpointKind.PERIODIC,
    ) -> int:
        """Take a checkpoint that no longer names the oldest ``forget`` increments."""
        published = self.prepare(forget=forget, kind=kind)
        self.store.manifests.publish(published)
        self.end("completed")
        if committed:
            commit(self.store, self.number, self.generation)
        return self.number

    def prepare(
        self, *, forget: int = 0, kind: CheckpointKind = CheckpointKind.PERIODIC
    ) -> CheckpointManifest:
        """Everything of a checkpoint but the manifest."""
        self.number += 1
        self.clock_ms += HOUR_MS // 2
        self.store.attempts.record_trigger(trigger(self.number, self.generation))
        checkpoint_id = CheckpointId(self.number)
        own = self._write(self.store.paths.state(checkpoint_id, "window", 0))
        key = self.store.paths.shared_segment("window", self.generation, 0, self._sequence)
        self._sequence += 1
        self.chain = [*self.chain[forget:], self._write(key)]
        parent_id, self._parent = self._parent, self.number
        return manifest(
            generation=self.generation,
            checkpoint_id=self.number,
            parent_checkpoint_id=parent_id,
            kind=kind,
            completed_at_ms=self.clock_ms,
            subtasks=(
                subtask("window", 0, segments=(own, *self.chain)),
                *(subtask(op, n) for op, n in (("window", 1), ("sink", 0), ("sink", 1))),
            ),
        )

    def attempt(self, *, ended: bool) -> int:
        """Write the parts of a checkpoint that does not complete; ``ended``: that is recorded."""
        chain, parent = self.chain, self._parent
        self.prepare()
        self.chain, self._parent = chain, parent
        if ended:
            self.end("aborted")
        return self.number

    def end(self, outcome: Outcome) -> None:
        """Record how the newest attempt ended."""
        self.store.attempts.record_outcome(
            HistoryRecord(
                checkpoint_id=self.number,
                generation=self.generation,
                kind=CheckpointKind.PERIODIC,
                outcome=outcome,
                reason="",
                triggered_at_ms=self.clock_ms,
                ended_at_ms=self.clock_ms,
                duration_ms=1.0,
            )
        )

    # --- what others do -------------------------------------------------------------------------

    def pin(self, checkpoint_id: int, name: str = "keep", until_ms: int | None = None) -> None:
        """Pin it, or hold it until a time."""
        Pins(self.store).pin(pin_of(checkpoint_id, name, until_ms))

    def retention(self, policy: RetentionPolicy, objects: ObjectStore | None = None) -> Retention:
        """Retention that reads and deletes one after the other, through ``objects``."""
        store = self.store if objects is None else CheckpointStore(objects, JOB)
        return Retention(store, policy, lambda: self.clock_ms, readers=1)

    def _write(self, key: str) -> SegmentRef:
        data = key.encode()
        assert self.store.objects.put_if_absent(key, data)
        file = FileRef(
            path=self.store.paths.relative(key),
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        return SegmentRef(**dict(file), row_count=1)


def planned(number: int, *checkpoint_ids: int) -> RetentionPlanRecord:
    """A plan that deletes these, written down by hand."""
    parts = (
        PlannedCheckpoint(checkpoint_id=c, reasons=("old",), files=(), size_bytes=0)
        for c in checkpoint_ids
    )
    return RetentionPlanRecord(
        number=number,
        job="payments",
        generation=1,
        actor="me",
        actor_kind=ActorKind.PERSON,
        reason="why",
        planned_at_ms=1,
        policy={},
        checkpoints=tuple(parts),
    )


def pin_of(checkpoint_id: int, name: str = "keep", until_ms: int | None = None) -> PinRecord:
    return PinRecord(
        checkpoint_id=checkpoint_id,
        name=name,
        actor="me",
        reason="to look at it",
        created_at_ms=START_MS,
        expires_at_ms=until_ms,
    )


def run(job: StoredJob, policy: RetentionPolicy, objects: ObjectStore | None = None):
    """One run of retention: finish what is begun, plan, apply."""
    retention = job.retention(policy, objects)
    retention.finish_earlier()
    return retention.apply(retention.plan(), ME, {})


def random_job(seed: int, steps: int = 14) -> StoredJob:
    """A job with a random past. The newest checkpoint is whole and committed."""
    random = Random(seed)
    job = StoredJob()
    job.start()
    job.complete()
    for _ in range(random.randrange(4, steps)):
        _one_step(job, random)
    newest = [c for c in job.store.manifests.ids() if _is_on_timeline(job, c)]
    if random.random() < 0.5:
        job.start(newest[-1])
    job.complete()
    for _ in range(random.randrange(3)):
        _damage(job, random)
    return job


def _one_step(job: StoredJob, random: Random) -> None:
    job.clock_ms += random.choice([-HOUR_MS, 0, 0, HOUR_MS, DAY_MS])
    completed = [c for c in job.store.manifests.ids() if _is_on_timeline(job, c)]
    match random.choice(
        ["complete"] * 5 + ["start", "back", "attempt", "attempt", "zombie", "pin"]
    ):
        case "complete":
            kind = CheckpointKind.SAVEPOINT if random.random() < 0.1 else CheckpointKind.PERIODIC
            job.complete(committed=random.random() < 0.8, forget=random.randrange(3), kind=kind)
        case "start":
            job.start(completed[-1])
        case "back":
            job.start(random.choice(completed))
        case "attempt":
            job.attempt(ended=random.random() < 0.5)
        case "zombie":
            late = job.prepare()
            job.start(completed[-1])
            key = job.store.paths.manifest(CheckpointId(late.checkpoint_id))
            job.store.objects.put(key, late.to_bytes())
        case "pin":
            until_ms = random.choice([None, job.clock_ms + DAY_MS, job.clock_ms - 1])
            job.pin(
                random.choice(completed), until_ms=until_ms, name=f"p{job.number}-{job.clock_ms}"
            )


def _is_on_timeline(job: StoredJob, checkpoint_id: CheckpointId) -> bool:
    summaries = {s.checkpoint_id: s for s in job.store.list_summaries()}
    return not summaries[checkpoint_id].orphan


def _damage(job: StoredJob, random: Random) -> None:
    completed = job.store.manifests.ids()[:-1]
    if not completed:
        return
    checkpoint_id = random.choice(completed)
    found = job.store.manifests.find(checkpoint_id)
    own = [f.path for f in found.files() if f.path.startswith("checkpoints/")]
    key = job.store.paths.manifest(checkpoint_id)
    if random.random() < 0.6 and own:
        key = job.store.paths.absolute(own[0])
    if job.store.objects.size(key) is not None:
        damage(
            job.store, key, random.choice(["missing", "torn"]) if key.endswith("seg") else "torn"
        )


def random_policy(random: Random) -> RetentionPolicy:
    return RetentionPolicy(
        keep_last=random.randint(1, 3),
        hourly=random.choice([0, 0, 2]),
        daily=random.choice([0, 0, 2]),
        max_age_ms=random.choice([None, None, DAY_MS]),
        delete_unreadable=random.random() < 0.3,
        quarantine_min_ms=random.choice([0, HOUR_MS]),
        history_keep=random.choice([None, 0, 2]),
    )
