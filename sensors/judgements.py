"""Verdicts on a stream and its checkpoints: facts in, verdict out, for Dagster's checks.

The same function is used when a check is run by hand, when the observer reports a new checkpoint,
and when a sensor decides. Times are of wall clocks, in milliseconds since 1970.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from laminar_core.records.audit import AuditReport
from laminar_core.records.drill import DrillRecord
from laminar_core.records.manifest import GenerationEnd
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import duration_ms


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check, in one line. ``figures`` are plotted.

    ``is_severe``: a failure is severe, because rows or state may be lost; else it is a warning.
    """

    passed: bool
    description: str
    is_severe: bool = False
    figures: Mapping[str, float | int] = field(default_factory=dict[str, float | int])


# --- one checkpoint, and those before it ----------------------------------------------------------


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is not less than ``share`` of all values (nearest rank).

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    assert values, "nothing has no percentile"
    assert 0 < share <= 1, share
    return sorted(values)[math.ceil(share * len(values)) - 1]


def alignment_p99(alignment_ms: Sequence[float], policy: AlertPolicy) -> float | None:
    """Return the p99 over the window; ``alignment_ms`` is per checkpoint, oldest first.

    None with fewer than ``alignment_samples_min`` samples.
    """
    window = alignment_ms[-policy.alignment_window :]
    return None if len(window) < policy.alignment_samples_min else percentile(window, 0.99)


def judge_alignment(alignment_ms: Sequence[float], policy: AlertPolicy) -> Verdict:
    """Judge the recent alignment times; the last one belongs to the judged checkpoint."""
    newest_ms = alignment_ms[-1]
    p99_ms = alignment_p99(alignment_ms, policy)
    figures = {"alignment_ms": round(float(newest_ms), 3)}
    if p99_ms is not None:
        figures["alignment_p99_ms"] = round(float(p99_ms), 3)
    if newest_ms > duration_ms(policy.alignment_hard):
        said = f"barriers waited {newest_ms:.0f} ms for each other, {policy.alignment_hard} is"
        return Verdict(passed=False, description=f"{said} an emergency", figures=figures)
    if p99_ms is None:
        said = f"{len(alignment_ms)} checkpoints are too few for a p99"
        return Verdict(passed=True, description=said, figures=figures)
    count = min(len(alignment_ms), policy.alignment_window)
    said = f"p99 of the last {count} alignment times is {p99_ms:.0f} ms"
    if p99_ms > duration_ms(policy.alignment_act):
        said = f"{said}, more than {policy.alignment_act}"
        return Verdict(passed=False, description=said, figures=figures)
    return Verdict(passed=True, description=said, figures=figures)


def judge_inflight_share(inflight_bytes: int, size_bytes: int, policy: AlertPolicy) -> Verdict:
    """Judge the share of in-flight rows in a checkpoint; ``size_bytes`` includes them."""
    share = inflight_bytes / size_bytes if size_bytes else 0.0
    said = f"{share:.0%} of {size_bytes} bytes were in flight"
    passed = share <= policy.inflight_share_max
    if not passed:
        said = (
            f"{said}, more than {policy.inflight_share_max:.0%}: rows queue up before an operator"
        )
    return Verdict(passed, said, figures={"inflight_share": round(share, 4)})


def judge_chain_length(runs: Mapping[str, int], policy: AlertPolicy) -> Verdict:
    """Judge how much a restore merges; ``runs`` per subtask (``segment_chain``)."""
    longest = max(runs, key=lambda subtask: runs[subtask], default=None)
    length = 0 if longest is None else runs[longest]
    passed = length <= policy.chain_length_max
    said = f"the longest chain has {length} segments"
    if not passed:
        said = (
            f"{said} ({longest}), more than {policy.chain_length_max}: they are not merged in time"
        )
    return Verdict(passed, said, figures={"chain_length": length})


# --- files that are lost --------------------------------------------------------------------------

NEWEST_MARK = "newest_mark"
"""Among the figures: the newest checkpoint that was ever marked. Each new damage raises it."""

_IDS_NAMED = 5


@dataclass(frozen=True, slots=True)
class LostFiles:
    """Completed checkpoints in the store that lack files, as a running job has found."""

    checkpoint_ids: tuple[int, ...]
    """Ascending; not empty."""
    newest_id: int
    """The newest completed checkpoint on the timeline."""
    whole_id: int | None
    """The newest checkpoint without known damage: a restore falls back to it."""
    newest_mark: int
    example: str
    found_at_ms: int
    """When the newest of them was found to be damaged."""
    is_in_memory: bool
    """Whether the generation that found it is running: its memory still has the lost state."""


def judge_lost_files(lost: LostFiles | None, now_ms: int, policy: AlertPolicy) -> Verdict:
    """Judge whether completed checkpoints have all their files, or whether the loss is repaired.

    It is repaired by a checkpoint that completed since. Repair is expected as long as the job that
    found the loss runs and its next checkpoint is not overdue.
    """
    if lost is None:
        said = "no completed checkpoint is known to lack a file"
        return Verdict(passed=True, description=said, figures={"damaged_checkpoints": 0})
    ids = lost.checkpoint_ids
    figures = {"damaged_checkpoints": len(ids), NEWEST_MARK: lost.newest_mark}
    named = ", ".join(map(str, ids[-_IDS_NAMED:]))
    more = f" and {len(ids) - _IDS_NAMED} older ones" if len(ids) > _IDS_NAMED else ""
    said = f"checkpoint{'s' if len(ids) > 1 else ''} {named}{more} cannot be restored: the job"
    said = f"{said} found damage while it ran, {lost.example}"
    if lost.newest_id == lost.whole_id:
        said = f"{said}. Repaired: checkpoint {lost.newest_id} names no lost file"
        return Verdict(passed=False, description=said, figures=figures)
    is_overdue = now_ms - lost.found_at_ms > duration_ms(policy.checkpoint_age_max)
    if lost.is_in_memory and not is_overdue:
        said = f"{said}. Being repaired: the next checkpoint writes it anew from memory"
        return Verdict(passed=False, description=said, figures=figures)
    said = f"{said}. Not repaired: no checkpoint has completed since, and a restore"
    if lost.whole_id is None:
        said = f"{said} finds none that is intact: put the files back from a copy"
    else:
        said = f"{said} goes back to checkpoint {lost.whole_id}"
    return Verdict(passed=False, description=said, is_severe=True, figures=figures)


# --- what a restore reads again -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceNeeds:
    """The rows that a restore of the newest checkpoint reads again: all since then."""

    checkpoint_id: int
    oldest_row_ms: int
    """See ``oldest_row_needed_ms``."""


@dataclass(frozen=True, slots=True)
class SourceRetention:
    """Until when a restore finds its rows; ``left_ms`` is negative if it does not any more."""

    expires_at_ms: int
    left_ms: int

    @property
    def has_expired(self) -> bool:
        """Whether the source may have dropped rows that a restore reads."""
        return self.left_ms <= 0


def oldest_row_needed_ms(watermark_us: int | None, triggered_at_ms: int) -> int:
    """Return the age limit of rows that a restore reads again, which are those after the cut.

    They arrived after the trigger, unless the stream was behind: then they are as old as its event
    time, given by ``watermark_us``. (So event time has to be the time of the rows in the source; a
    watermark ahead of the trigger is ignored.)
    """
    if watermark_us is None:
        return triggered_at_ms
    return min(watermark_us // 1000, triggered_at_ms)


def source_retention(
    oldest_row_ms: int, now_ms: int, policy: AlertPolicy
) -> SourceRetention | None:
    """Return when the source drops rows that a restore needs; None: it keeps everything."""
    if policy.source_keeps is None:
        return None
    expires_at_ms = oldest_row_ms + duration_ms(policy.source_keeps)
    return SourceRetention(expires_at_ms, expires_at_ms - now_ms)


def judge_source_retention(needs: SourceNeeds | None, now_ms: int, policy: AlertPolicy) -> Verdict:
    """Judge whether the source still has the rows that a restore of the newest checkpoint reads."""
    if policy.source_keeps is None:
        return Verdict(passed=True, description="the source keeps its rows for ever")
    if needs is None:
        return Verdict(passed=True, description="no checkpoint needs rows of the source")
    found = source_retention(needs.oldest_row_ms, now_ms, policy)
    assert found is not None
    hours = abs(found.left_ms) / 3_600_000
    said = f"rows that a restore of checkpoint {needs.checkpoint_id} reads"
    figures = {"hours_left": round(found.left_ms / 3_600_000, 3)}
    if found.has_expired:
        said = f"{said} have expired for {hours:.1f} hours: a restore may lose rows"
        return Verdict(passed=False, description=said, is_severe=True, figures=figures)
    said = f"{said} expire in {hours:.1f} hours"
    if found.left_ms < duration_ms(policy.source_margin):
        said = f"{said}, less than {policy.source_margin}: take a checkpoint, or let it keep more"
        return Verdict(passed=False, description=said, figures=figures)
    return Verdict(passed=True, description=said, figures=figures)


@dataclass(frozen=True, slots=True)
class Headroom:
    """How long the oldest retained checkpoint can be restored, as its source knows it."""

    source: str
    checkpoint_id: int
    rows: int | None
    """Rows between the oldest one at the source and the checkpoint's position; below 0: lost."""
    seconds_left: float | None
    """Time until the source may delete rows that a restore reads; None: unknown, or never."""

    @property
    def is_lost(self) -> bool:
        """Whether the source has deleted rows that a restore of this checkpoint reads."""
        return self.rows is not None and self.rows < 0

    def expires_within(self, margin_ms: int) -> bool:
        """Return whether the source may delete such rows within the margin, or has done so."""
        return self.is_lost or (
            self.seconds_left is not None and 1000 * self.seconds_left < margin_ms
        )


def headroom_line(found: Headroom) -> str:
    """Return one line about a source.

    >>> headroom_line(Headroom("in", 3, 70, 7_200.0))
    'checkpoint 3, the oldest, can be restored for at least 2.0 hours: then in may delete its rows'
    """
    oldest = f"checkpoint {found.checkpoint_id}, the oldest,"
    if found.is_lost:
        return f"{oldest} cannot be restored: {found.source} has deleted {-(found.rows or 0)} rows"
    if found.seconds_left is None:
        return f"{oldest} can be restored: {found.source} deletes nothing because of its age"
    hours = max(found.seconds_left, 0) / 3600
    return (
        f"{oldest} can be restored for at least {hours:.1f} hours: then {found.source} may delete "
        "its rows"
    )


def judge_headroom(found: Sequence[Headroom], policy: AlertPolicy) -> Verdict:
    """Judge whether the sources still have the rows of the oldest retained checkpoint.

    A failure is a warning: newer checkpoints can be restored for longer.
    """
    margin_ms = duration_ms(policy.source_margin)
    near = [each for each in found if each.expires_within(margin_ms)]
    figures: dict[str, float | int] = {}
    for each in found:
        if each.rows is not None:
            figures[f"headroom_rows/{each.source}"] = each.rows
        if each.seconds_left is not None:
            figures[f"headroom_hours/{each.source}"] = round(each.seconds_left / 3600, 3)
    said = "; ".join(headroom_line(each) for each in near or found)
    return Verdict(passed=not near, description=said, figures=figures)


def both(first: Verdict, second: Verdict) -> Verdict:
    """Combine two verdicts: the result fails if either fails."""
    return Verdict(
        passed=first.passed and second.passed,
        description=f"{first.description}; {second.description}",
        is_severe=any(each.is_severe and not each.passed for each in (first, second)),
        figures={**first.figures, **second.figures},
    )


# --- the job as a whole ---------------------------------------------------------------------------

_ON_PURPOSE = {"finished", "stopped", "cancelled"}


@dataclass(frozen=True, slots=True)
class JobLife:
    """The newest generation, and when it was last known to be safe.

    ``meant_since_ms``: since when the job is meant to run. A driver that restarts it again and
    again makes no new beginning.
    """

    generation: int
    meant_since_ms: int
    end: GenerationEnd | None
    completed_id: int | None
    """The newest completed checkpoint on the timeline."""
    completed_at_ms: int | None

    @property
    def is_meant_to_run(self) -> bool:
        """Whether the job should be running: it runs, or it died."""
        return not ended_on_purpose(self.end)


def ended_on_purpose(end: GenerationEnd | None) -> bool:
    """Return whether the job finished or was ended on purpose; a dead or running one was not."""
    return end is not None and end.outcome in _ON_PURPOSE


def judge_freshness(life: JobLife | None, now_ms: int, policy: AlertPolicy) -> Verdict:
    """Judge whether a job that should run still completes checkpoints."""
    if life is None:
        return Verdict(passed=True, description="the job never ran")
    if not life.is_meant_to_run:
        assert life.end is not None
        said = f"generation {life.generation} has ended by itself: {life.end.outcome}"
        return Verdict(passed=True, description=said)
    age_ms = now_ms - max(life.completed_at_ms or 0, life.meant_since_ms)
    newest = "none" if life.completed_id is None else f"checkpoint {life.completed_id}"
    said = f"newest is {newest}; {age_ms / 1000:.0f} s since a checkpoint or the start"
    passed = age_ms <= duration_ms(policy.checkpoint_age_max)
    if not passed:
        said = (
            f"{said}, more than {policy.checkpoint_age_max}: generation {life.generation} is stuck"
        )
        said = f"{said} or dead" if life.end is None else f"{said}: {life.end.outcome}"
    return Verdict(passed, said, is_severe=True, figures={"age_s": round(age_ms / 1000, 3)})


def judge_restorable(
    newest: DrillRecord | None, now_ms: int, policy: AlertPolicy, unreadable: Sequence[str] = ()
) -> Verdict:
    """Judge the last restore drill.

    ``unreadable`` has a line for each record of a newer drill that cannot be read. Such a drill may
    have failed, so an older one that passed does not stand for it.
    """
    if unreadable:
        return Verdict(passed=False, description=f"{'; '.join(unreadable)}: run the drill job")
    if newest is None:
        said = "no drill has shown yet that a checkpoint can be restored: run the drill job"
        return Verdict(passed=False, description=said)
    hours = (now_ms - newest.started_at_ms) / 3_600_000
    figures = {"drill_age_hours": round(hours, 3), "drill": newest.number}
    said = f"drill {newest.number} of checkpoint {newest.checkpoint_id}, {hours:.1f} hours ago,"
    if newest.outcome == "failed":
        said = f"{said} failed: {'; '.join(newest.problems) or 'no reason given'}"
        return Verdict(passed=False, description=said, is_severe=True, figures=figures)
    said = f"{said} passed"
    if now_ms - newest.started_at_ms > duration_ms(policy.drill_age_max):
        said = f"{said}, which is more than {policy.drill_age_max} ago: drill again"
        return Verdict(passed=False, description=said, figures=figures)
    return Verdict(passed=True, description=said, figures=figures)


@dataclass(frozen=True, slots=True)
class OutputExpiry:
    """When a sink's target gives up output that waits for its commit: the first of one sink."""

    sink: str
    checkpoint_id: int
    """The checkpoint that the output waits with."""
    completed_at_ms: int
    expires_at_ms: int
    """By the clock of the target."""

    def left_ms(self, now_ms: int) -> int:
        """Return the time that is left; 0 or less: it may have expired."""
        return self.expires_at_ms - now_ms

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the target may have given the output up."""
        return self.left_ms(now_ms) <= 0

    def is_near(self, now_ms: int, policy: AlertPolicy) -> bool:
        """Return whether it has expired, or does so within the margin.

        The margin is at most half of the time between the completion of the checkpoint and the
        expiry. So a job whose transactions are short is no reason to warn as long as it commits.
        """
        at_first_ms = self.left_ms(self.completed_at_ms)
        margin_ms = min(duration_ms(policy.transaction_margin), at_first_ms // 2)
        return self.has_expired(now_ms) or self.left_ms(now_ms) < margin_ms


def expiry_line(found: OutputExpiry, now_ms: int) -> str:
    """Return one line about the output of a sink.

    >>> expiry_line(OutputExpiry("out", 3, 0, 900_000), 300_000)
    'output of checkpoint 3 in sink out expires in 10.0 minutes'
    """
    output = f"output of checkpoint {found.checkpoint_id} in sink {found.sink}"
    minutes = abs(found.left_ms(now_ms)) / 60_000
    if found.has_expired(now_ms):
        return f"{output} expired {minutes:.1f} minutes ago, and no commit of it is recorded"
    return f"{output} expires in {minutes:.1f} minutes"


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Completed checkpoints on the timeline whose output may not be visible."""

    checkpoint_ids: tuple[int, ...]
    """Ascending."""
    oldest_completed_at_ms: int
    expiries: tuple[OutputExpiry, ...] = ()
    """One for each sink with such output that expires."""


def judge_transactions(
    waiting: Uncommitted | None, committed_id: int | None, now_ms: int, policy: AlertPolicy
) -> Verdict:
    """Judge whether completed output becomes visible, and whether it can still do so.

    ``committed_id`` is the newest visible one. Output that may have expired is a severe failure.
    """
    known = "nothing" if committed_id is None else f"everything up to checkpoint {committed_id}"
    figures: dict[str, float | int] = {"uncommitted": 0}
    if waiting is None:
        return Verdict(passed=True, description=f"{known} is committed", figures=figures)
    age_ms = now_ms - waiting.oldest_completed_at_ms
    count, first = len(waiting.checkpoint_ids), waiting.checkpoint_ids[0]
    figures = {"uncommitted": count, "oldest_s": round(age_ms / 1000, 3)}
    for each in waiting.expiries:
        figures[f"expires_in_s/{each.sink}"] = round(each.left_ms(now_ms) / 1000, 3)
    said = f"{known} is committed, {count} from checkpoint {first} on wait"
    if near := [each for each in waiting.expiries if each.is_near(now_ms, policy)]:
        is_severe = any(each.has_expired(now_ms) for each in near)
        lines = "; ".join(expiry_line(each, now_ms) for each in near)
        remedy = (
            "`laminar recover --dry-run` shows whether rows are lost"
            if is_severe
            else "start the job, or repair what keeps it from committing"
        )
        return Verdict(
            passed=False,
            description=f"{said}; {lines}: {remedy}",
            is_severe=is_severe,
            figures=figures,
        )
    if age_ms <= duration_ms(policy.commit_age_max):
        return Verdict(passed=True, description=said, figures=figures)
    said = (
        f"{said}, the oldest for {age_ms / 1000:.0f} s, more than {policy.commit_age_max}: "
        "see whether the sink answers; a recovery commits them"
    )
    return Verdict(passed=False, description=said, figures=figures)


def judge_audit_chain(report: AuditReport) -> Verdict:
    """Judge the verification of the audit log."""
    figures = {"records": report.record_count, "findings": len(report.findings)}
    if not report.findings:
        said = f"all {report.record_count} audit records are as they were written"
        return Verdict(passed=True, description=said, figures=figures)
    first, more = report.findings[0].problem, len(report.findings) - 1
    said = f"{first}; and {more} more findings" if more else first
    return Verdict(passed=False, description=said, is_severe=True, figures=figures)
