"""The invariants of a run: named checks over its evidence.

Each check yields one line per violation. Where possible a check uses the contents of the store, or
a sequential oracle, instead of the runtime's own reports.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from zlib import crc32

from laminar_core.driver.events import (
    CheckpointCompleted,
    GenerationFailed,
    GenerationStarted,
    ProgressMade,
)
from laminar_core.errors import ErrorCode, LaminarError
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.coordinator import NEVER_UNALIGNED
from laminar_core.protocol.recovery import Base, on_timeline
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.audit import parse_audit_record, parse_head
from laminar_core.records.manifest import CheckpointManifest, GenerationBase
from laminar_core.records.paths import JobPaths, number_in
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.disaster_kinds import WORKERS
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.history import Cut, Facts, History, Write, base_id_of
from laminar_core.testing.jobs import BuildJob
from laminar_core.testing.network import SILENCE_SEEN_MS
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.world import NotLiveError
from laminar_core.worker.inflight import SnapshotLimits

RECOVERED_WITHIN_MS = 400_000.0
"""From the end of the last disaster to the end of the job; a missing worker alone takes 120 s."""

ATTEMPTS_MAX = 30
"""Consecutive checkpoints that may fail without a disaster, if their timeout lets them complete."""

ATTEMPT_MAX_MS = 60_000.0
"""Longest undisturbed checkpoint: twice the silence after which a worker is lost."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run, after its end, or as far as it came."""

    build: BuildJob
    simulation: Simulation
    disasters: Disasters
    history: History
    facts: Facts
    ended_ms: float
    seed: int
    turns_max: int

    @property
    def went_back(self) -> bool:
        """Whether committed checkpoints may have been abandoned, by damage or on request."""
        return bool(self.disasters.hits["corruption"] or self.disasters.hits["go-back"])

    @property
    def declines_on_purpose(self) -> bool:
        """Whether checkpoints with in-flight data are declined because of small buffers.

        This concerns overtaking checkpoints, and in a loop all that are taken before its end.
        """
        options, usual = self.simulation.options, SnapshotLimits()
        small = options.limits.max_inflight_buffer_bytes < usual.max_inflight_buffer_bytes
        overtakes = options.checkpoint.alignment_timeout_ms is not None
        return small and (overtakes or bool(self.disasters.job.plan.loops()))

    @property
    def expires_on_purpose(self) -> bool:
        """Whether an aligned barrier may wait longer for a slow function than a checkpoint may.

        At most the whole input is before it.
        """
        checkpoint = self.simulation.options.checkpoint
        progress = (e for e in self.simulation.events if isinstance(e, ProgressMade))
        rows = max((made.rows_in for made in progress), default=0)
        pace = max(self.simulation.paces.values(), default=1.0)
        work_ms = rows * self.disasters.job.burden.row_ms * pace
        return checkpoint.alignment_timeout_ms is None and checkpoint.timeout_ms < work_ms


def exactly_once(evidence: Evidence) -> Iterator[str]:
    """Check that the visible output is a sequential program's: no row is lost or duplicated."""
    result = evidence.disasters.result
    yield from evidence.disasters.job.problems(0 if result is None else result.rows_late)


def liveness(evidence: Evidence) -> Iterator[str]:
    """Check that the job ends soon after the last disaster."""
    took_ms = evidence.ended_ms - evidence.disasters.last_hit_ms
    if took_ms > RECOVERED_WITHIN_MS:
        yield f"the job ended {took_ms / 1000:.0f} s after the last disaster"
    if not evidence.facts.manifests:
        yield "no checkpoint was completed"


def checkpoints_complete(evidence: Evidence) -> Iterator[str]:
    """Check that checkpoints complete again after the last disaster.

    Each attempt must end within a bound, and not too many in a row may fail. Where
    ``declines_on_purpose`` holds, periodic checkpoints may fail; only those without in-flight data,
    such as the last one, count. Where ``expires_on_purpose`` holds, any number may fail.
    """
    attempts_max = inf if evidence.expires_on_purpose else ATTEMPTS_MAX
    writes, facts = evidence.history.writes, evidence.facts
    ended_ms = _ends(writes)
    completed = {manifest.checkpoint_id for _, manifest in facts.manifests}
    failed_in_a_row = 0
    for order, trigger in facts.triggers:
        began_ms, number = writes[order].time_ms, trigger.checkpoint_id
        if began_ms <= evidence.disasters.last_hit_ms:
            continue
        took_ms = ended_ms.get(number, evidence.ended_ms) - began_ms
        if took_ms > ATTEMPT_MAX_MS:
            yield f"checkpoint {number} was under way for {took_ms / 1000:.0f} s"
        if number in completed:
            failed_in_a_row = 0
        elif trigger.kind in NEVER_UNALIGNED or not evidence.declines_on_purpose:
            failed_in_a_row += 1
        if failed_in_a_row == attempts_max:
            yield f"{attempts_max} attempts in a row failed, the last one was checkpoint {number}"


def _ends(writes: list[Write]) -> dict[int, float]:
    """When each attempt's manifest or history entry was written, whichever came first."""
    ended_ms: dict[int, float] = {}
    for write in writes:
        number = _checkpoint_of(write.key)
        ends = write.key.endswith("/manifest.json") or "/history/" in write.key
        if number is not None and ends:
            ended_ms.setdefault(number, write.time_ms)
    return ended_ms


def consistent_cut(evidence: Evidence) -> Iterator[str]:
    """Check that a completed checkpoint leads to the same output when restored from its store.

    Any number of workers is used if the job may be rescaled. Files that a disaster had damaged are
    restored first: the job could not know of them, and every other file has to exist.
    """
    cut = evidence.history.cut
    if cut is None:
        return
    parallelism = evidence.simulation.options.parallelism
    if evidence.disasters.job.rescales:
        parallelism = WORKERS[crc32(f"{evidence.seed} {cut.checkpoint_id}".encode()) % len(WORKERS)]
    job = evidence.build(parallelism)
    job.load(cut.ledgers)
    other = Simulation(
        job.plan,
        parallelism=parallelism,
        seed=evidence.seed + 1,
        checkpoint=evidence.simulation.options.checkpoint,
        objects=cut.disk,
        turns_max=evidence.turns_max,
        first_driver=len(evidence.simulation.drivers) + 1,
    )
    if _is_orphan(other, cut):
        return
    _undo_damage(other, cut)
    try:
        result = other.run(restore_id=cut.checkpoint_id, take_over=True)
    except (LaminarError, NotLiveError) as error:
        yield f"checkpoint {cut.checkpoint_id} cannot be restored: {error}"
        return
    for problem in job.problems(result.rows_late):
        yield f"checkpoint {cut.checkpoint_id}, restored with {parallelism} workers: {problem}"


def _undo_damage(simulation: Simulation, cut: Cut) -> None:
    store = simulation.store
    files = store.manifests.read(cut.checkpoint_id).files()
    cut.disk.repair([store.paths.absolute(file.path) for file in files])


def _is_orphan(simulation: Simulation, cut: Cut) -> bool:
    return any(
        summary.checkpoint_id == cut.checkpoint_id and summary.orphan
        for summary in simulation.store.list_summaries()
    )


def nothing_referenced_is_deleted(evidence: Evidence) -> Iterator[str]:
    """Check that every file named by a completed checkpoint always exists unchanged.

    Files damaged by a disaster are left out.
    """
    yield from evidence.history.deletions
    store = evidence.simulation.store
    spared = {store.paths.relative(key) for key in evidence.disasters.damaged_keys}
    for checkpoint_id in store.manifests.ids():
        if store.paths.manifest(checkpoint_id) in evidence.disasters.damaged_keys:
            continue  # What it says now, nobody wrote.
        for part in store.verify(checkpoint_id).parts:
            if part.problem and part.path not in spared:
                yield f"checkpoint {checkpoint_id}: {part.problem}"


def one_owner(evidence: Evidence) -> Iterator[str]:
    """Check that an old generation changes nothing that counts once a newer one has started.

    It may still create objects of its own checkpoints, which are orphans. ``protocol.recovery`` has
    the rules and their proof.
    """
    facts = evidence.facts
    numbers = [claim.generation for _, claim in facts.claims]
    if numbers != sorted(set(numbers)):
        yield f"generations were claimed in the order {numbers}"
    yield from _overwritten(evidence.history.writes)
    bases = [(order, base) for order, base in facts.bases if base.closed_by is None]
    yield from _written_without_a_base(evidence)
    yield from _completed_in_the_past(evidence, bases)
    if not evidence.went_back:
        yield from _orphans_that_count(evidence, [base for _, base in bases])


def _completed_in_the_past(
    evidence: Evidence, bases: list[tuple[int, GenerationBase]]
) -> Iterator[str]:
    """A sleeper may still complete a checkpoint; that is well if it is an orphan from the start."""
    for order, manifest in evidence.facts.manifests:
        number, writer = manifest.checkpoint_id, Generation(manifest.generation)
        newer = [
            Base(Generation(base.generation), base_id_of(base))
            for base_order, base in bases
            if base_order < order and base.generation > writer
        ]
        if newer and on_timeline(number, writer, newer):
            yield (
                f"generation {writer} completed checkpoint {number} in the past of generation "
                f"{newer[-1].generation}"
            )


def _overwritten(writes: list[Write]) -> Iterator[str]:
    for write in writes:
        if write.verb == "put" and not write.key.endswith((".heartbeat.json", "/audit/head.json")):
            yield f"{write.process} overwrites {write.key}"


def _written_without_a_base(evidence: Evidence) -> Iterator[str]:
    facts = evidence.facts
    started = {base.generation: order for order, base in facts.bases if base.closed_by is None}
    for order, trigger in facts.triggers:
        if started.get(trigger.generation, order) >= order:
            yield f"generation {trigger.generation} reserves ids without having started"


def _orphans_that_count(evidence: Evidence, bases: list[GenerationBase]) -> Iterator[str]:
    known = [Base(Generation(base.generation), base_id_of(base)) for base in bases]
    manifests: dict[int, CheckpointManifest] = {
        m.checkpoint_id: m for _, m in evidence.facts.manifests
    }

    def is_orphan(number: int) -> bool:
        manifest = manifests.get(number)
        return manifest is None or not on_timeline(
            CheckpointId(number), Generation(manifest.generation), known
        )

    for _, commit in evidence.facts.commits:
        if is_orphan(commit.checkpoint_id):
            yield f"checkpoint {commit.checkpoint_id} is an orphan and its output was committed"
    for event in evidence.simulation.events:
        if isinstance(event, GenerationStarted) and event.restored_checkpoint_id is not None:
            yield from _restored_orphan(event, manifests, known)


def _restored_orphan(
    event: GenerationStarted, manifests: Mapping[int, CheckpointManifest], bases: list[Base]
) -> Iterator[str]:
    number = event.restored_checkpoint_id
    assert number is not None
    before = [base for base in bases if base.generation < event.generation]
    manifest = manifests.get(number)
    if manifest is None or not on_timeline(
        CheckpointId(number), Generation(manifest.generation), before
    ):
        yield f"generation {event.generation} restored checkpoint {number}, an orphan"


def ids_never_reused(evidence: Evidence) -> Iterator[str]:
    """Check that a checkpoint id belongs to one generation, above all ids at its start.

    A process that is suspended during a reservation makes it when it resumes, even for an id that
    retention has removed. It is fenced before the next one.
    """
    facts = evidence.facts
    late = _reserved_asleep(evidence)
    owner: dict[int, int] = {
        t.checkpoint_id: t.generation for order, t in facts.triggers if order not in late
    }
    sleepers = {(t.checkpoint_id, t.generation) for order, t in facts.triggers if order in late}
    for _, manifest in facts.manifests:
        if owner.get(manifest.checkpoint_id) != manifest.generation:
            yield (
                f"generation {manifest.generation} completed checkpoint {manifest.checkpoint_id}, "
                f"which generation {owner.get(manifest.checkpoint_id)} had reserved"
            )
    for write in evidence.history.writes:
        number = _checkpoint_of(write.key)
        if "/operators/" in write.key and number is not None:
            writer = write.process.partition("-")[0].removeprefix("g")
            if writer != str(owner.get(number)) and (number, int(writer)) not in sleepers:
                yield f"{write.process} wrote {write.key}, of generation {owner.get(number)}"
    started = {base.generation: order for order, base in facts.bases if base.closed_by is None}
    for order, trigger in facts.triggers:
        if order in late:
            continue
        since = started.get(trigger.generation, order)
        seen = [_checkpoint_of(write.key) or 0 for write in evidence.history.writes[:since]]
        if trigger.checkpoint_id <= max(seen, default=0):
            yield f"generation {trigger.generation} reserved {trigger.checkpoint_id} once more"


def _reserved_asleep(evidence: Evidence) -> set[int]:
    """Reservations of generations that looked for a newer one before that one was claimed."""
    facts, writes = evidence.facts, evidence.history.writes
    return {
        order
        for order, trigger in facts.triggers
        for claimed, claim in facts.claims
        if claimed < order
        and claim.generation > trigger.generation
        and writes[order].stretch < writes[claimed].stretch
    }


def _checkpoint_of(key: str) -> int | None:
    parts = key.removeprefix(f"{JOB}/").split("/")
    if parts[0] == "checkpoints":
        return number_in(f"{parts[1]}/")
    return number_in(parts[1]) if parts[0] in ("history", "commits") else None


def audited(evidence: Evidence) -> Iterator[str]:
    """Check that the audit log is whole, and announced each act before it took effect.

    Manifests name its records. Those that a disaster had damaged are read as they were written. A
    record that was being written when the store disappeared is missing, and the log reports it. A
    process that was suspended during an append, and saw another store meanwhile, may follow one of
    that store's records.
    """
    log = AuditLog(_undamaged(evidence), JobPaths(JOB), lambda: 0)
    misled = _misled(evidence, log)
    for finding in log.verify().findings:
        lost = finding.kind == "missing" and _written_elsewhere(evidence, log, finding.number)
        if not lost and finding.number not in misled:
            yield finding.problem
    announced: set[tuple[str, int]] = set()
    claims = {order: claim.generation for order, claim in evidence.facts.claims}
    bases = {o: base.generation for o, base in evidence.facts.bases if base.closed_by is None}
    for write in evidence.history.writes:
        if write.key.startswith(log.paths.audit) and write.key != log.paths.audit_head:
            record = parse_audit_record(write.data)
            number = (record.after or {}).get("generation")
            if isinstance(number, int):
                announced.add((record.action, number))
        elif write.order in claims:
            number = claims[write.order]
            if not announced & {("claim", number), ("take-over", number)}:
                yield f"generation {number} was claimed before the audit log said so"
        elif write.order in bases:
            number = bases[write.order]
            if not announced & {("restore", number), ("start-fresh", number)}:
                yield f"generation {number} started before the audit log said from what"


def _written_elsewhere(evidence: Evidence, log: AuditLog, first: int | None) -> bool:
    """Whether one of the records that are missing from ``first`` on went into another place."""
    number = first or 0
    following = next((n for n in log.numbers() if n > number), number + 1)
    lost = evidence.history.lost_keys
    return any(log.paths.audit_record(n) in lost for n in range(number, following))


def _misled(evidence: Evidence, log: AuditLog) -> set[int]:
    """Numbers of records that follow one of another store: its writer slept, and put it there."""
    elsewhere = evidence.history.stretches_elsewhere
    return {
        parse_head(write.data).number + 1
        for write in evidence.history.writes
        if write.key == log.paths.audit_head and write.stretch in elsewhere
    }


def _undamaged(evidence: Evidence) -> ObjectStore:
    disk = evidence.simulation.objects
    assert isinstance(disk, SimulatedDisk), "a campaign runs on one"
    twin = disk.copy()
    twin.repair(evidence.disasters.damaged_keys)
    return twin


def own_store_only(evidence: Evidence) -> Iterator[str]:
    """Check that a replacement of a missing store is left alone, and counts for nothing.

    Workers may leave parts of checkpoints there, see ``History``. Checkpoints reported as complete
    are in the store.
    """
    yield from evidence.history.strays
    for place in evidence.disasters.places:
        if place.root_was_made:
            yield "the directory of the store was made anew while it was away"
    completed = {(m.checkpoint_id, m.generation) for _, m in evidence.facts.manifests}
    for event in evidence.simulation.events:
        if isinstance(event, CheckpointCompleted):
            number, generation = event.checkpoint_id, event.generation
            if (number, generation) not in completed:
                yield f"checkpoint {number} was reported, and the store has no manifest of it"


def store_recovers(evidence: Evidence) -> Iterator[str]:
    """Check that a job continues after it lost its store for a while.

    Every outcome recorded by its drivers leads to a restart. A checkpoint completes after the store
    is back, unless the last one had before.
    """
    yield from evidence.disasters.ends_while_lost
    back_ms, writes = evidence.disasters.store_back_ms, evidence.history.writes
    manifests = evidence.facts.manifests
    if back_ms is None or any(manifest.kind is CheckpointKind.FINAL for _, manifest in manifests):
        return  # A driver that slept after the last checkpoint may bring the job to its end.
    if not any(writes[order].time_ms >= back_ms for order, _ in manifests):
        yield "no checkpoint completed after the store was back"


def links_mend(evidence: Evidence) -> Iterator[str]:
    """Check that no generation ends because of a connection that is away for a short time."""
    limit_ms = evidence.simulation.options.deadlines.link_ms
    if evidence.disasters.silent_ms > limit_ms - SILENCE_SEEN_MS:
        return
    for event in evidence.simulation.events:
        if isinstance(event, GenerationFailed) and event.code == ErrorCode.LINK_BROKEN:
            yield f"generation {event.generation} ended: {event.reason}"


Check = Callable[[Evidence], Iterator[str]]

CHECKS_WITHOUT_END: dict[str, Check] = {"checkpoints-complete": checkpoints_complete}
"""Checks that hold for unfinished runs, so they explain why one did not end."""

CHECKS: dict[str, Check] = {
    "exactly-once": exactly_once,
    "liveness": liveness,
    "checkpoints-complete": checkpoints_complete,
    "consistent-cut": consistent_cut,
    "nothing-referenced-is-deleted": nothing_referenced_is_deleted,
    "one-owner": one_owner,
    "ids-never-reused": ids_never_reused,
    "audited": audited,
    "own-store-only": own_store_only,
    "store-recovers": store_recovers,
    "links-mend": links_mend,
}
