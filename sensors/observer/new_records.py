"""The observer's reads of the store: everything after a cursor, bounded.

This module does not use Dagster, so the read may continue in the background when a store is slow.
"""

from dataclasses import dataclass

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.drill import DrillRecord
from laminar_core.records.paths import number_in
from laminar_core.resources.names import GROUP
from laminar_core.sensors.cursor import ClockMs, Cursor, Number
from laminar_core.sensors.facts.attempts import Attempt, Attempts, Failed
from laminar_core.sensors.facts.audit_follower import AuditFollower
from laminar_core.sensors.facts.lost_files import lost_files, read_mark, read_marks
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.sensors.judgements import judge_lost_files
from laminar_core.sensors.observer.check_events import FILES_CHECK, evaluation, judged
from laminar_core.sensors.observer.checkpoint_metadata import materialization, source_observation
from laminar_core.sensors.observer.checkpoint_reports import (
    REPORTS_MAX,
    Report,
    failure_observation,
)
from laminar_core.sensors.observer.health_reports import FoundHealth, HealthWatch, look_at_health
from laminar_core.sensors.observer.job_observations import (
    Happening,
    deleted_checkpoints,
    drill_event,
    happenings,
)
from laminar_core.sensors.observer.lost_file_reports import damage_observation
from laminar_core.sensors.observer.output_reports import output_observation
from laminar_core.sensors.observer.visible_output import (
    FoundOutput,
    OutputWatch,
    Searched,
    read_output,
)
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import drill_numbers
from laminar_core.store.records import bytes_in, read_record

SCAN_MAX = 200
"""Attempts at a time that are looked at, each with some requests to the store."""

ACTS_MAX = 50
"""Largest number of audit records at a time."""

DRILLS_MAX = 10

BESIDE_MS = 60_000
"""Interval between reports on the newest checkpoint, and between searches for lost files."""

SILENCE_MS = 600_000
"""If there is no new attempt for so long, they are listed once more: numbers may be forgotten."""


class ObserverCursor(Cursor):
    """How much of one store is reported. Times are of the sensor's clock."""

    store: str = ""
    """The identity of the store."""
    generation: Number = 0
    """All attempts of earlier generations are reported."""
    claim: str = ""
    """The digest of its claim."""
    attempt: Number = 0
    attempted_by: Number = 0
    """The newest generation when ``attempt`` was reported; no number up to it is of a later one."""
    new_ms: ClockMs = 0
    """Time of the last new attempt or listing."""
    audit: Number = 0
    drill: Number = 0
    completed: Number = 0
    """The newest completed checkpoint known."""
    beside: Number = 0
    """The newest checkpoint whose dependent metadata are published."""
    beside_ms: ClockMs = 0
    """Time of that publication."""
    marks: tuple[Number, ...] = ()
    """Checkpoints whose damage is reported."""
    marks_ms: ClockMs = 0
    """Time of the last search for damage."""
    output: Number = 0
    """The newest checkpoint whose output is reported."""
    health: HealthWatch = HealthWatch()

    @classmethod
    def of_store(cls, text: str | None, store: str) -> "ObserverCursor":
        """Return the cursor of an earlier tick.

        A new one for another store, or without a cursor.
        """
        found = cls.read(text)
        return found if found.store == store else cls(store=store)


@dataclass(frozen=True, slots=True)
class Identity:
    """Distinguishes a store from one that was begun anew: the digest of its first claim."""

    sha256: str
    newest_generation: Generation
    newest_sha256: str
    """The digest of the newest claim."""
    has_started: bool
    """Whether the base of the newest generation, and so its first number, is known."""


@dataclass(frozen=True, slots=True)
class FoundAttempt:
    """An attempt, with the event that reports it."""

    checkpoint_id: int
    attempt: Attempt
    event: Report | None


@dataclass(frozen=True, slots=True)
class FoundAct:
    """An audit record; ``gone`` are checkpoints that it deleted."""

    number: int
    happenings: tuple[Happening, ...] = ()
    gone: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundDrill:
    """A drill, with the event that reports it, unless it is unreadable."""

    number: int
    event: dg.AssetObservation | None


@dataclass(frozen=True, slots=True)
class FoundBeside:
    """Metadata that depend on the newest checkpoint. ``is_all``: they are complete."""

    checkpoint_id: int
    is_all: bool
    events: tuple[dg.AssetObservation, ...] = ()
    verdicts: tuple[dg.AssetCheckEvaluation, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundMarks:
    """Checkpoints marked as damaged, with events for new ones, and the verdict."""

    checkpoint_ids: tuple[int, ...]
    events: tuple[dg.AssetObservation, ...]
    verdict: dg.AssetCheckEvaluation


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Everything found after ``cursor``. ``problem``: why attempts could not be classified."""

    cursor: ObserverCursor
    identity: Identity
    attempts: tuple[FoundAttempt, ...] = ()
    more: bool = False
    listed: bool = False
    problem: str | None = None
    beside: FoundBeside | None = None
    marks: FoundMarks | None = None
    """None: this tick did not search."""
    acts: tuple[FoundAct, ...] = ()
    drills: tuple[FoundDrill, ...] = ()
    output: FoundOutput | None = None
    health: FoundHealth | None = None
    """None: this tick did not look, and nothing has changed."""


def identity(store: CheckpointStore) -> Identity | None:
    """Return the identity of the store; None if no job ever ran in it.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    names = store.objects.children(store.paths.generations)
    numbers = [number for name in names if (number := number_in(name)) is not None]
    if not numbers:
        return None
    first, newest = Generation(min(numbers)), Generation(max(numbers))
    digests = {
        each: sha256_hex(bytes_in(store.objects, store.paths.claim(each)) or b"")[:16]
        for each in {first, newest}
    }
    has_started = store.paths.base(newest).removeprefix(store.paths.generations) in names
    return Identity(digests[first], newest, digests[newest], has_started)


def is_set_back(store: CheckpointStore, cursor: ObserverCursor) -> bool:
    """Return whether the store is an older copy of itself, as when a backup was put in its place.

    Then numbers that the cursor has passed are used a second time.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    if AuditFollower(store).newest() < cursor.audit:
        return True
    try:
        trigger = store.attempts.read_trigger(CheckpointId(cursor.attempt or 1))
    except CorruptCheckpointError:
        return False
    if trigger is None:
        return (store.attempts.highest_id() or 0) < cursor.attempt
    return 0 < cursor.attempted_by < trigger.generation


def read_new_records(
    store: CheckpointStore,
    cursor_text: str | None,
    policy: AlertPolicy,
    now_ms: int,
    watch: OutputWatch | None = None,
    *,
    group: str = GROUP,
) -> NewRecords | None:
    """Read what is new; None: nothing ever ran in this store. Changes nothing.

    ``watch``: what is known of the reports of output. ``group``: whose jobs are named.

    Raises:
        StorageUnavailable: the store did not answer; nothing is lost, read again.
    """
    known = identity(store)
    if known is None:
        return None
    cursor = ObserverCursor.of_store(cursor_text, known.sha256)
    if cursor.claim != known.newest_sha256 and is_set_back(store, cursor):
        cursor = ObserverCursor(store=known.sha256)
    is_quiet = not 0 <= now_ms - cursor.new_ms < SILENCE_MS
    listed = cursor.generation != known.newest_generation or is_quiet
    attempts, more, problem = _attempts(store, cursor.attempt, listed=listed)
    completed = [a.checkpoint_id for a in attempts if isinstance(a.attempt, StoredCheckpoint)]
    searched = _searched(known, cursor, completed)
    beside = _beside(store, cursor, max(completed, default=0), policy, now_ms)
    health = look_at_health(
        store,
        cursor.health,
        known.newest_generation,
        [(each.checkpoint_id, each.attempt) for each in attempts],
        policy,
        now_ms,
        group=group,
    )
    is_due = beside is not None or not 0 <= now_ms - cursor.marks_ms < BESIDE_MS
    return NewRecords(
        cursor=cursor,
        identity=known,
        attempts=attempts,
        more=more,
        listed=listed,
        problem=problem,
        beside=beside,
        marks=_marks(store, cursor, policy, now_ms) if is_due else None,
        acts=tuple(_acts(store, cursor.audit)),
        drills=tuple(_drills(store, cursor.drill)),
        # Of many checkpoints that are new only the last one counts, so all have to be known.
        output=None if more else read_output(store, searched, watch or OutputWatch(), now_ms),
        health=health,
    )


def _searched(known: Identity, cursor: ObserverCursor, completed: list[int]) -> Searched:
    newest = max(cursor.completed, *completed, 0)
    return Searched(known.sha256, known.newest_generation, range(cursor.output + 1, newest + 1))


def _attempts(
    store: CheckpointStore, after: int, *, listed: bool
) -> tuple[tuple[FoundAttempt, ...], bool, str | None]:
    """Return as many attempts as one tick can report, whether there are more, and a problem."""
    found: list[FoundAttempt] = []
    events = 0
    attempts = Attempts(store).after(after, SCAN_MAX + 1, is_same_generation=not listed)
    try:
        for checkpoint_id, attempt in attempts:
            if len(found) == SCAN_MAX or events == REPORTS_MAX:
                return tuple(found), True, None
            event: Report | None = None
            if isinstance(attempt, StoredCheckpoint):
                event = materialization(store, attempt)
            elif isinstance(attempt, Failed):
                event = failure_observation(store.job, attempt)
            events += event is not None
            found.append(FoundAttempt(checkpoint_id, attempt, event))
    except CorruptCheckpointError as error:
        return tuple(found), True, str(error)
    return tuple(found), False, None


def _beside(
    store: CheckpointStore, cursor: ObserverCursor, completed: int, policy: AlertPolicy, now_ms: int
) -> FoundBeside | None:
    """Not more often than ``BESIDE_MS``: together they cost more than the checkpoint itself."""
    newest = max(completed, cursor.completed)
    if newest <= cursor.beside or 0 <= now_ms - cursor.beside_ms < BESIDE_MS:
        return None
    stored = read_stored(store, CheckpointId(newest))
    if not isinstance(stored, StoredCheckpoint):  # Deleted meanwhile.
        return FoundBeside(newest, is_all=True)
    source, output = source_observation(store, stored), output_observation(store, stored)
    return FoundBeside(
        newest,
        is_all=output is not None,  # Else it is not committed yet.
        events=tuple(event for event in (source, output) if event is not None),
        verdicts=tuple(judged(store, stored, policy)),
    )


def _marks(
    store: CheckpointStore, cursor: ObserverCursor, policy: AlertPolicy, now_ms: int
) -> FoundMarks | None:
    marks = read_marks(store)
    try:
        verdict = judge_lost_files(lost_files(store, marks), now_ms, policy)
    except CorruptCheckpointError:  # The attempts say so, too; and the check, where it is run.
        return None
    news = [each for each in marks.newest if each not in cursor.marks]
    records = [record for each in news if (record := read_mark(store, each)) is not None]
    return FoundMarks(
        marks.newest,
        tuple(damage_observation(store.job, record) for record in records),
        evaluation(store.job, FILES_CHECK, verdict),
    )


def _acts(store: CheckpointStore, after: int) -> list[FoundAct]:
    found: list[FoundAct] = []
    for number, audited in AuditFollower(store).after(after, ACTS_MAX):
        if audited is None:
            found.append(FoundAct(number))
            continue
        ids = deleted_checkpoints(audited)
        gone = tuple(each for each in ids if not store.manifests.is_complete(each))
        found.append(FoundAct(number, tuple(happenings(store, audited)), gone))
    return found


def _drills(store: CheckpointStore, after: int) -> list[FoundDrill]:
    numbers = [number for number in drill_numbers(store) if number > after]
    return [FoundDrill(number, _drill(store, number)) for number in numbers[:DRILLS_MAX]]


def _drill(store: CheckpointStore, number: int) -> dg.AssetObservation | None:
    try:
        record = read_record(store.objects, store.paths.drill(number), DrillRecord)
    except CorruptCheckpointError:
        return None
    if record is None:
        return None
    return drill_event(store.job, record, sha256_hex(record.to_bytes()))
