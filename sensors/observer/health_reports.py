"""Events for a stream's health: its state in one line, whenever that changes.

Every few seconds the observer looks at the newest heartbeat. If the state of the stream is another
than it reported, it reports the checks ``running``, ``attempts`` and ``freshness``, and an
observation of the deployment with the line. So none of them stays green after the driver stopped,
and none stays red after a recovery.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import Generation
from laminar_core.resources.names import GROUP, StreamCheck, check_key
from laminar_core.resources.values import Values
from laminar_core.sensors.cursor import Beat, ClockMs, Number
from laminar_core.sensors.facts.attempts import Attempt, Failed
from laminar_core.sensors.facts.health_facts import driver_life, failing_attempts, is_silent
from laminar_core.sensors.facts.job_facts import job_life
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint
from laminar_core.sensors.health import judge_attempts, judge_running
from laminar_core.sensors.judgements import JobLife, judge_freshness
from laminar_core.sensors.observer.check_events import evaluation
from laminar_core.sensors.observer.checkpoint_metadata import DATA_VERSION_TAG
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.store.checkpoint_store import CheckpointStore

RUNNING_CHECK: StreamCheck = "running"
ATTEMPTS_CHECK: StreamCheck = "attempts"
FRESHNESS_CHECK: StreamCheck = "freshness"

LOOK_MS = 10_000
"""Interval between looks at the heartbeat; a new generation is looked at immediately."""

STATE = "state"
"""Metadata of an observation of the deployment: the state of the stream in one line."""


class HealthWatch(Values):
    """The observer's memory of a stream's health. Times are of its own clock."""

    generation: Number = 0
    state: str = ""
    """The reported state; empty: report it again."""
    looked_ms: ClockMs = 0
    beat: Beat = -1
    """The newest heartbeat of the generation; -1: none yet."""
    beat_ms: ClockMs = 0
    """When this heartbeat was first seen."""
    is_failing: bool = False
    """Whether attempts at checkpoints were failing when they were last judged."""


@dataclass(frozen=True, slots=True)
class FoundHealth:
    """``verdicts``: of what has changed. ``fresh``: freshness, after a checkpoint completed."""

    watch: HealthWatch
    verdicts: tuple[dg.AssetCheckEvaluation, ...] = ()
    fresh: dg.AssetCheckEvaluation | None = None


def look_at_health(  # noqa: PLR0913 - facts, as the observer has them
    store: CheckpointStore,
    watch: HealthWatch,
    generation: Generation,
    attempts: Sequence[tuple[int, Attempt]],
    policy: AlertPolicy,
    now_ms: int,
    *,
    group: str = GROUP,
) -> FoundHealth | None:
    """Return what has changed; None: it is not time to look. ``attempts`` are the new ones.

    The texts name the jobs of ``group``.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    after = _look_at_driver(store, watch, generation, policy, now_ms)
    is_changed = (after.generation, after.state) != (watch.generation, watch.state)
    completed = [each for _, each in attempts if isinstance(each, StoredCheckpoint)]
    has_failed = any(isinstance(each, Failed) for _, each in attempts)
    verdicts: list[dg.AssetCheckEvaluation] = []
    if is_changed:
        try:
            verdicts = _of_driver(store, after, policy, now_ms, group)
        except CorruptCheckpointError:  # The attempts say so, too; the next look tries again.
            after = after.model_copy(update={"state": ""})
    if is_changed or has_failed or (completed and watch.is_failing):
        newest_id = attempts[-1][0] if attempts else store.attempts.highest_id()
        judged = judge_attempts(failing_attempts(store, newest_id))
        verdicts.append(evaluation(store.job, ATTEMPTS_CHECK, judged))
        after = after.model_copy(update={"is_failing": not judged.passed})
    if after == watch and not completed and not verdicts:
        return None
    fresh = _fresh(store.job, completed[-1], policy, now_ms) if completed else None
    return FoundHealth(after, tuple(verdicts), fresh)


def _look_at_driver(
    store: CheckpointStore,
    watch: HealthWatch,
    generation: Generation,
    policy: AlertPolicy,
    now_ms: int,
) -> HealthWatch:
    is_same = watch.generation == generation
    if is_same and 0 <= now_ms - watch.looked_ms < LOOK_MS:
        return watch
    if not is_same:
        kept = watch.is_failing
        watch = HealthWatch(generation=generation, beat_ms=now_ms, is_failing=kept)
    try:
        end = store.generations.read_end(generation)
        beat = None if end is not None else store.generations.read_heartbeat(generation)
    except CorruptCheckpointError:
        return watch.model_copy(update={"state": "unreadable", "looked_ms": now_ms})
    if end is not None:
        return watch.model_copy(update={"state": end.outcome, "looked_ms": now_ms})
    if beat is not None and beat.sequence != watch.beat:
        # The first one may have been written long ago.
        seen_ms = min(now_ms, beat.at_ms) if watch.beat == -1 else now_ms
        watch = watch.model_copy(update={"beat": beat.sequence, "beat_ms": seen_ms})
    elif watch.beat_ms > now_ms:  # The clock was set back.
        watch = watch.model_copy(update={"beat_ms": now_ms})
    has_beaten = watch.beat != -1
    state = "beating" if has_beaten else "starting"
    if is_silent(now_ms - watch.beat_ms, policy, has_beaten=has_beaten):
        state = "silent"
    return watch.model_copy(update={"state": state, "looked_ms": now_ms})


def _of_driver(
    store: CheckpointStore, watch: HealthWatch, policy: AlertPolicy, now_ms: int, group: str
) -> list[dg.AssetCheckEvaluation]:
    life = job_life(store)
    silence_ms, has_beaten = now_ms - watch.beat_ms, watch.beat != -1
    driver = driver_life(store, life, now_ms, policy, silence_ms, has_beaten=has_beaten)
    return [
        evaluation(store.job, RUNNING_CHECK, judge_running(driver, policy, group)),
        evaluation(store.job, FRESHNESS_CHECK, judge_freshness(life, now_ms, policy)),
    ]


def _fresh(
    stream: str, newest: StoredCheckpoint, policy: AlertPolicy, now_ms: int
) -> dg.AssetCheckEvaluation:
    manifest = newest.manifest
    life = JobLife(
        generation=manifest.generation,
        meant_since_ms=0,
        end=None,
        completed_id=manifest.checkpoint_id,
        completed_at_ms=manifest.completed_at_ms,
    )
    return evaluation(stream, FRESHNESS_CHECK, judge_freshness(life, now_ms, policy))


# --- what Dagster shows ---------------------------------------------------------------------------


def state_observation(told: dg.AssetCheckEvaluation, watch: HealthWatch) -> dg.AssetObservation:
    """Return the line of the check ``running`` as an event, for the page of the deployment."""
    said = told.description or ""
    version = sha256_hex(f"state {watch.generation} {watch.beat} {said}".encode())
    return dg.AssetObservation(
        told.asset_key, description=said, metadata={STATE: said}, tags={DATA_VERSION_TAG: version}
    )


def is_shown(instance: dg.DagsterInstance, told: dg.AssetCheckEvaluation) -> bool:
    """Return whether Dagster's UI shows the same result."""
    last = _last(instance, told.asset_check_key)
    if last is None or is_outdated(instance, told.asset_key.path[0]):
        return False
    before, now = ((each.passed, each.severity, each.description) for each in (last, told))
    return before == now


def is_outdated(instance: dg.DagsterInstance, stream: str) -> bool:
    """Return whether Dagster's UI shows no result of ``running``, or none of the present state.

    It shows none after the deployment was materialised, or after a run that was to evaluate the
    check and did not.
    """
    key = check_key(stream, RUNNING_CHECK)
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    if found is None or found.evaluation is None:
        return True
    made = instance.get_latest_materialization_event(key.asset_key)
    return made is not None and found.create_timestamp <= made.timestamp


def has_failed(instance: dg.DagsterInstance, stream: str, check: StreamCheck) -> bool:
    """Return whether the check's last evaluation failed."""
    last = _last(instance, check_key(stream, check))
    return last is not None and not last.passed


def _last(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return None if found is None else found.evaluation
