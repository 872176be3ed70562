"""Schedules of the shared jobs: one each, with a run for every stream that is due.

A schedule ticks at the times of all its streams (``SchedulePolicy``). A tick requests a run for
each stream that has this time; the run's key has the stream and the time, so a repeated tick
repeats nothing. Checks of all due streams are one run, because starting a run takes longer than
they do.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import dagster as dg
from dagster._utils.schedules import cron_string_iterator

from laminar_core.orchestration.acts import HOUSEKEEPING
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.drill_jobs import seed_of
from laminar_core.orchestration.housekeeping.schedule_decision import (
    Due,
    NotDue,
    Tick,
    decide_tick,
)
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import (
    ACTS_ON_TAG,
    STREAM_FIELD,
    StreamCheck,
    StreamJob,
    check_key,
    schedule_name,
)
from laminar_core.sensors.background import BackgroundReads, Patience, Unanswered

_PRIORITY = "-1"
"""Runs that start, stop and recover streams have precedence."""


@dataclass(frozen=True, slots=True)
class Chance:
    """One run that a tick may ask for."""

    form: Callable[[str], dict[str, Any]]
    """Returns the config for the tick's time."""
    name: str = ""
    completed_min: int = 0


_TWICE = (
    Chance(lambda _: {"which": {"newest": {}}}, "newest", completed_min=1),
    Chance(lambda at: {"which": {"random": {"seed": seed_of(at)}}}, "random", completed_min=2),
)
_CHANCES: dict[StreamJob, tuple[Chance, ...]] = {
    "retention": (Chance(lambda _: {"mode": "delete"}),),
    "drill": _TWICE,
    "audit": (Chance(lambda _: {}),),
    "orphans": (Chance(lambda _: {"mode": "delete"}),),
    "costs": (Chance(lambda _: {}),),
    "checks": (),
}


def schedules_of(
    group: Group,
    names: Iterable[StreamJob] = HOUSEKEEPING,
    checks: Sequence[StreamCheck] = (),
) -> list[dg.ScheduleDefinition]:
    """Return one schedule per job for which a stream has a time; ``checks`` are what it runs."""
    crons: dict[StreamJob, dict[str, str]] = {name: _crons(group, name) for name in names}
    return [_schedule(group, name, times, checks) for name, times in crons.items() if times]


def _crons(group: Group, name: StreamJob) -> dict[str, str]:
    """Return the time of each stream that has one.

    Streams whose schedules are not enabled count only if no stream's are: then the schedule is
    there to be turned on in the UI.
    """
    enabled = [spec for spec in group if spec.schedules.enabled] or list(group)
    times = {spec.name: getattr(spec.schedules, name) for spec in enabled}
    return {stream: cron for stream, cron in times.items() if cron is not None}


def _schedule(
    group: Group, name: StreamJob, crons: Mapping[str, str], checks: Sequence[StreamCheck]
) -> dg.ScheduleDefinition:
    schedule, job = schedule_name(name, group.name), group.job_name(name)
    on = any(spec.schedules.enabled for spec in group)
    times, patience = sorted(set(crons.values())), Patience()
    reads = {spec.name: BackgroundReads(patience=patience) for spec in group}

    @dg.schedule(
        name=schedule,
        job_name=job,
        cron_schedule=times[0] if len(times) == 1 else times,
        execution_timezone="UTC",
        description=f"Runs {job} for each stream that is due; see SchedulePolicy.{name}.",
        default_status=dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED,
    )
    def evaluate(
        context: dg.ScheduleEvaluationContext, laminar_checkpoints: CheckpointStoreResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        at = context.scheduled_execution_time
        patience.renew()
        timed = [spec for spec in group if spec.name in crons]
        due = [spec for spec in timed if len(times) == 1 or is_due(crons[spec.name], at)]
        counts = any(chance.completed_min for chance in _CHANCES[name])
        tick = Tick(schedule, job, at)
        ticks = [
            (
                spec,
                _look(tick, laminar_checkpoints, spec.name, reads[spec.name], counts=counts),
            )
            for spec in due
        ]
        answers = _checked(ticks, checks) if checks else _answers(ticks, _CHANCES[name])
        requests = [answer for answer in answers if isinstance(answer, dg.RunRequest)]
        yield from requests or [_skipped(due, answers)]

    return evaluate


def is_due(cron: str, at: datetime) -> bool:
    """Return whether this is one of the times of ``cron``, in UTC.

    >>> is_due("17 * * * *", datetime.fromisoformat("2026-11-21T04:17:00Z"))
    True
    """
    return next(cron_string_iterator(at.timestamp(), cron, "UTC")).timestamp() == at.timestamp()


def _look(
    tick: Tick,
    checkpoints: CheckpointStoreResource,
    stream: str,
    reads: BackgroundReads,
    *,
    counts: bool,
) -> Tick:
    """Look at the store; checkpoints are only counted if that matters: it is a long listing."""

    def read() -> Tick:
        store = checkpoints.open(stream)
        generation = store.claims.newest()
        completed = len(store.manifests.ids()) if counts and generation is not None else 0
        return replace(tick, generation=generation, completed=completed)

    try:
        return reads.read(tick.at, read)
    except Unanswered as error:
        return replace(tick, problem=str(error))


def _answers(
    ticks: Sequence[tuple[StreamSpec, Tick]], chances: Sequence[Chance]
) -> list[dg.RunRequest | dg.SkipReason]:
    found: list[dg.RunRequest | dg.SkipReason] = []
    for spec, tick in ticks:
        answers = [_answer(spec, tick, chance) for chance in chances]
        requests = [answer for answer in answers if isinstance(answer, dg.RunRequest)]
        found += requests or answers[:1]
    return found


def _checked(
    ticks: Sequence[tuple[StreamSpec, Tick]], checks: Sequence[StreamCheck]
) -> list[dg.RunRequest | dg.SkipReason]:
    """Ask for the checks of all streams that ever ran, in one run."""
    decided = [(spec, tick, decide_tick(tick)) for spec, tick in ticks]
    due = [(spec, tick) for spec, tick, decision in decided if isinstance(decision, Due)]
    if not due:
        return [dg.SkipReason(d.reason) for *_, d in decided if isinstance(d, NotDue)]
    keys = [check_key(spec.name, check) for spec, _ in due for check in checks]
    tags = {"dagster/priority": _PRIORITY}
    return [dg.RunRequest(run_key=due[0][1].at, asset_check_keys=keys, tags=tags)]


def _skipped(
    due: Sequence[StreamSpec], answers: Sequence[dg.RunRequest | dg.SkipReason]
) -> dg.SkipReason:
    """Return the reasons of all streams, each one once."""
    said = [str(each.skip_message) for each in answers if isinstance(each, dg.SkipReason)]
    reasons = "; ".join(dict.fromkeys(said)) or "no stream is due"
    return dg.SkipReason(reasons if len(due) <= 1 else f"{len(due)} streams: {reasons}")


def _answer(spec: StreamSpec, tick: Tick, chance: Chance) -> dg.RunRequest | dg.SkipReason:
    decision = decide_tick(tick, chance.completed_min)
    if isinstance(decision, NotDue):
        return dg.SkipReason(decision.reason)
    form = {STREAM_FIELD: spec.name, **chance.form(tick.at), "reason": decision.reason}
    return dg.RunRequest(
        run_key=f"{spec.name} {tick.at} {chance.name}".strip(),
        run_config={"ops": {tick.job: {"config": form}}},
        tags={**spec.tags, ACTS_ON_TAG: spec.name, "dagster/priority": _PRIORITY},
    )
