"""Jobs with which users move a driver: one op with a form each, one run per stream at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.orchestration.acts import ActForm, act_job, begin_act, form_schema
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.launch import Drivers
from laminar_core.orchestration.launching.supervised_run import Context
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import GROUP, RECOVERS_TAG, StreamJob
from laminar_core.sensors.run_records import earlier_move

F = TypeVar("F", bound=ActForm)

_LOOK_MS = 1_000


@dataclass(frozen=True, slots=True)
class Move(Generic[F]):
    """One run of the job: its form, and the resources that it uses."""

    context: Context
    spec: StreamSpec
    checkpoints: CheckpointStoreResource
    drivers: Drivers
    form: F
    group: str = GROUP
    """The prefix of the jobs that a message names."""


def move_job(  # noqa: PLR0913 - what a job is made of
    group: Group,
    name: StreamJob,
    form: type[F],
    act: Callable[[Move[F]], None],
    description: str,
    tags: dict[str, str] | None = None,
    *,
    waits: bool = True,
    clock: Clock | None = None,
) -> dg.JobDefinition:
    """Return the job of that name; ``form`` is the config of its op.

    ``waits``: a run begins when earlier moves of its stream are over.
    """
    timer = clock or SystemClock()

    @dg.op(
        name=group.job_name(name),
        config_schema=form_schema(form, group),
        description=description,
    )
    def op(
        context: dg.OpExecutionContext,
        laminar_checkpoints: CheckpointStoreResource,
        laminar_driver: SparkDriverClient,
        laminar_launcher: DriverLauncher,
    ) -> None:
        spec, filled_in = begin_act(context, group, name, form)
        if waits and spec.launch == "detached":
            wait_for_turn(context, spec, timer)
        drivers = Drivers(laminar_driver, laminar_launcher)
        act(Move(context, spec, laminar_checkpoints, drivers, filled_in, group.name))

    return act_job(group, name, op, description, tags)


def wait_for_turn(context: dg.OpExecutionContext, spec: StreamSpec, clock: Clock) -> None:
    """Wait until no earlier run of a user moves the stream's driver.

    A run that lost its process is waited for only as long as a start may take. A run that a sensor
    requested does not wait, and no run waits for it, because nothing must keep a stream from coming
    back. A run that supervises is not waited for either. The store refuses one of two simultaneous
    moves.
    """
    if RECOVERS_TAG in context.run.tags:
        return
    patience_ms, last = 2 * spec.start_timeout_ms, ""
    while True:
        other = earlier_move(
            context.instance, spec.name, context.run.run_id, clock.now_ms(), patience_ms
        )
        if other is None:
            return
        if other.run_id != last:
            last = other.run_id
            context.log.info("waiting for run %s (%s) of the same stream", last, other.job)
        clock.wait_ms(_LOOK_MS)
