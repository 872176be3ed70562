"""Decide until when the source allows each checkpoint to be restored. Facts and decision.

A restore reads rows after the cut again. A source that drops rows, like Kafka with
``retention.ms``, eventually makes every checkpoint useless, whatever the store keeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from laminar_core.protocol.types import CheckpointKind
from laminar_core.sensors.alerting.alerts import Incident
from laminar_core.sensors.facts.job_facts import completed_newest_first
from laminar_core.sensors.facts.stored_checkpoints import watermark_us
from laminar_core.sensors.judgements import (
    SourceNeeds,
    judge_source_retention,
    oldest_row_needed_ms,
    source_retention,
)
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import KnownRun
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import read_generation
from laminar_core.store.owner import is_running, is_visible
from laminar_core.store.pins import Pins
from laminar_core.units import duration_ms

_CHECKPOINTS_MAX = 200
"""Number of newest checkpoints that are read."""


@dataclass(frozen=True, slots=True)
class Restorable:
    """A completed checkpoint on the timeline, and the oldest row that a restore reads again."""

    checkpoint_id: int
    triggered_at_ms: int
    oldest_row_ms: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Facts about one job; ``restorable`` are newest first."""

    now_ms: int
    restorable: tuple[Restorable, ...] = ()
    not_running: str | None = None
    """Why no driver would take a checkpoint; None: one is running."""
    request: KnownRun | None = None
    """The newest run that takes one."""


@dataclass(frozen=True, slots=True)
class SourceVerdict:
    """The decision of the sensor.

    ``ask_for``: why a checkpoint must be taken now; None if none is needed, or none would help.
    """

    line: str
    incidents: tuple[Incident, ...] = ()
    ask_for: str | None = None


def read_source_facts(store: CheckpointStore, now_ms: int) -> SourceFacts:
    """Return the facts without Dagster's runs.

    Raises:
        StorageUnavailable: the store did not answer.
        CorruptCheckpointError: a base cannot be read, so no timeline can be known.
    """
    pinned = set(Pins(store).by_checkpoint())
    found = [each.manifest for each in islice(completed_newest_first(store), _CHECKPOINTS_MAX)]
    return SourceFacts(
        now_ms,
        tuple(
            Restorable(
                m.checkpoint_id,
                m.triggered_at_ms,
                oldest_row_needed_ms(watermark_us(m), m.triggered_at_ms),
                m.checkpoint_id in pinned,
            )
            for m in found
            if m.kind is not CheckpointKind.FINAL  # All input had ended: nothing is read again.
        ),
        _why_not_running(store),
    )


def decide_source_retention(facts: SourceFacts, policy: AlertPolicy) -> SourceVerdict:
    """Return which checkpoints expire, when, and whether a new one helps. Pure."""
    if not facts.restorable:
        return SourceVerdict("no checkpoint needs rows of the source")
    newest, *older = facts.restorable
    needs = SourceNeeds(newest.checkpoint_id, newest.oldest_row_ms)
    verdict = judge_source_retention(needs, facts.now_ms, policy)
    lasting = _expiring(older, facts.now_ms, policy)
    line = "; ".join(
        [verdict.description, *([f"older ones: {', '.join(lasting)}"] if lasting else [])]
    )
    incidents = _pinned_incidents(older, facts.now_ms, policy)
    if verdict.passed:
        return SourceVerdict(line, tuple(incidents))
    is_late = facts.now_ms - newest.triggered_at_ms > duration_ms(policy.checkpoint_age_max)
    state = "expired" if verdict.is_severe else "expiring"
    found = Incident(
        cause=f"source-retention:{state}:{newest.checkpoint_id if is_late else 'lag'}",
        anchor="source-retention",
        severity="error" if verdict.is_severe else "warning",
        title="the source drops rows that a restore needs",
        text=verdict.description,
        facts={"checkpoint_id": newest.checkpoint_id, **verdict.figures},
    )
    ask_for, why_not = _remedy(facts, newest, is_late=is_late)
    line = f"{line}; {why_not}" if why_not else line
    return SourceVerdict(line, (found, *incidents), ask_for)


def _remedy(
    facts: SourceFacts, newest: Restorable, *, is_late: bool
) -> tuple[str | None, str | None]:
    """The reason for a checkpoint now, or why there is to be none."""
    if facts.not_running is not None:
        return None, f"no checkpoint can be taken: {facts.not_running}"
    if not is_late:
        behind_h = (newest.triggered_at_ms - newest.oldest_row_ms) / 3_600_000
        return None, f"the stream is {behind_h:.1f} hours behind: another checkpoint is no help"
    asked, age_ms = facts.request, facts.now_ms - newest.triggered_at_ms
    if asked is not None and asked.created_ms_ago < age_ms:
        return None, f"run {asked.run_id} was to take a checkpoint: {asked.status}"
    return f"what a restore of checkpoint {newest.checkpoint_id} reads expires at the source", None


def _expiring(older: Sequence[Restorable], now_ms: int, policy: AlertPolicy) -> list[str]:
    """Describe the checkpoints that have expired, or will within the margin, newest first."""
    said: list[str] = []
    for each in older:
        left_ms = _left_ms(each, now_ms, policy)
        pinned = " (pinned)" if each.pinned else ""
        if left_ms <= 0:
            said.append(f"{each.checkpoint_id}{pinned} expired {-left_ms / 3_600_000:.1f} h ago")
        elif left_ms < duration_ms(policy.source_margin):
            said.append(f"{each.checkpoint_id}{pinned} expires in {left_ms / 3_600_000:.1f} h")
    return said[:10]


def _pinned_incidents(
    older: Sequence[Restorable], now_ms: int, policy: AlertPolicy
) -> list[Incident]:
    """Return problems of pinned checkpoints, whose users rely on restoring them."""
    incidents: list[Incident] = []
    for each in older:
        left_ms = _left_ms(each, now_ms, policy)
        if not each.pinned or left_ms >= duration_ms(policy.source_margin):
            continue
        when = "have expired" if left_ms <= 0 else f"expire in {left_ms / 3_600_000:.1f} hours"
        incidents.append(
            Incident(
                cause=f"source-retention:pinned:{each.checkpoint_id}:{left_ms <= 0}",
                anchor="source-retention",
                severity="warning",
                title=f"pinned checkpoint {each.checkpoint_id} outlives its rows at the source",
                text=f"rows that a restore of checkpoint {each.checkpoint_id} reads {when}: "
                "keep a copy of these rows, or unpin it",
                facts={"checkpoint_id": each.checkpoint_id},
            )
        )
    return incidents


def _left_ms(each: Restorable, now_ms: int, policy: AlertPolicy) -> int:
    found = source_retention(each.oldest_row_ms, now_ms, policy)
    assert found is not None, "the source forgets, or nobody would ask"
    return found.left_ms


def _why_not_running(store: CheckpointStore) -> str | None:
    generation = store.claims.last()
    if generation is None:
        return "it has never run"
    found = read_generation(store.objects, store.paths, generation)
    if found.end is not None:
        return f"generation {generation} {found.end.outcome}"
    if (
        found.claim is not None
        and is_visible(found.claim.owner)
        and not is_running(found.claim.owner)
    ):
        return f"the driver of generation {generation} is gone"
    return None
