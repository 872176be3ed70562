"""Schedules of a stream's jobs, at the times of its ``SchedulePolicy``."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.orchestration.housekeeping.drill_jobs import seed_of
from laminar_core.orchestration.housekeeping.schedule_decision import NotDue, Tick, decide_tick
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import ACTS_ON_TAG, StreamJob, job_name, schedule_name

_PRIORITY = "-1"
"""Runs that start, stop and recover streams have precedence."""


@dataclass(frozen=True, slots=True)
class Chance:
    """One run that a tick may ask for."""

    form: Callable[[str], dict[str, Any]] | None
    """Returns the config for the tick's time; None: the job has no form."""
    name: str = ""
    completed_min: int = 0


_TWICE = (
    Chance(lambda _: {"which": "newest"}, "newest", completed_min=1),
    Chance(lambda at: {"which": "random", "seed": seed_of(at)}, "random", completed_min=2),
)
_CHANCES: dict[StreamJob, tuple[Chance, ...]] = {
    "retention": (Chance(lambda _: {}),),
    "drill": _TWICE,
    "audit": (Chance(lambda _: {}),),
    "orphans": (Chance(lambda _: {"mode": "delete"}),),
    "costs": (Chance(lambda _: {}),),
    "checks": (Chance(None),),
}
HOUSEKEEPING: tuple[StreamJob, ...] = ("retention", "drill", "audit", "orphans", "costs")


def schedules_of(
    spec: StreamSpec, names: Iterable[StreamJob] = HOUSEKEEPING
) -> list[dg.ScheduleDefinition]:
    """Return one schedule per job with a time in the policy."""
    crons: dict[StreamJob, str | None] = {name: getattr(spec.schedules, name) for name in names}
    return [_schedule(spec, name, cron) for name, cron in crons.items() if cron is not None]


def _schedule(spec: StreamSpec, name: StreamJob, cron: str) -> dg.ScheduleDefinition:
    schedule, job = schedule_name(spec.name, name), job_name(spec.name, name)
    on = spec.schedules.enabled

    @dg.schedule(
        name=schedule,
        job_name=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        description=f"Runs {job}; see SchedulePolicy.{name}.",
        default_status=dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED,
    )
    def evaluate(
        context: dg.ScheduleEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        chances = _CHANCES[name]
        tick = Tick(schedule, job, context.scheduled_execution_time)
        counts = any(chance.completed_min for chance in chances)
        tick = _look(tick, checkpoints, spec.name, counts=counts)
        answers = [_answer(spec, tick, chance) for chance in chances]
        requests = [answer for answer in answers if isinstance(answer, dg.RunRequest)]
        yield from requests or answers[:1]

    return evaluate


def _look(tick: Tick, checkpoints: CheckpointStoreResource, stream: str, *, counts: bool) -> Tick:
    """Look at the store; checkpoints are only counted if that matters: it is a long listing."""
    try:
        store = checkpoints.open(stream)
        generation = store.claims.newest()
        completed = len(store.manifests.ids()) if counts and generation is not None else 0
        return replace(tick, generation=generation, completed=completed)
    except LaminarError as error:
        return replace(tick, problem=str(error))


def _answer(spec: StreamSpec, tick: Tick, chance: Chance) -> dg.RunRequest | dg.SkipReason:
    decision = decide_tick(tick, chance.completed_min)
    if isinstance(decision, NotDue):
        return dg.SkipReason(decision.reason)
    config: dict[str, Any] = {}
    if chance.form is not None:
        form = {**chance.form(tick.at), "reason": decision.reason}
        config = {"ops": {tick.job: {"config": form}}}
    return dg.RunRequest(
        run_key=f"{tick.at} {chance.name}".strip(),
        run_config=config,
        tags={**spec.tags, ACTS_ON_TAG: spec.name, "dagster/priority": _PRIORITY},
    )
