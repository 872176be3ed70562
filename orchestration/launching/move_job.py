"""Jobs with which people move a driver: one op with a form each, and they take turns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import dagster as dg

from laminar_core.orchestration.acts import ActForm, act_job, valid_form
from laminar_core.orchestration.launching.launch import Drivers
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.detached import DetachedDriver
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import StreamJob, driver_pool, job_name

F = TypeVar("F", bound=ActForm)


@dataclass(frozen=True, slots=True)
class Move(Generic[F]):
    """One run of such a job: what was filled in, and what there is to do it with."""

    context: dg.OpExecutionContext
    spec: StreamSpec
    checkpoints: CheckpointStoreResource
    drivers: Drivers
    form: F


def move_job(
    spec: StreamSpec,
    name: StreamJob,
    form: type[F],
    act: Callable[[Move[F]], None],
    description: str,
) -> dg.JobDefinition:
    """The job of that name, whose op is asked what ``form`` asks for."""

    @dg.op(
        name=job_name(spec.name, name),
        config_schema=form.to_config_schema(),  # pyright: ignore[reportArgumentType]
        description=description,
        pool=move_pool(spec),
    )
    def op(
        context: dg.OpExecutionContext,
        checkpoints: CheckpointStoreResource,
        driver: SparkDriverClient,
        launcher: DetachedDriver,
    ) -> None:
        filled_in = valid_form(form, context.op_config)
        act(Move(context, spec, checkpoints, Drivers(driver, launcher), filled_in))

    return act_job(spec, name, op, description)


def move_pool(spec: StreamSpec) -> str | None:
    """The pool of what people do to move the driver, one after the other.

    A run that was killed keeps its slot until somebody ends it, so nothing that a sensor requests
    has it: there, of two at once the second is refused. A run that supervises must not hold a slot.
    """
    return driver_pool(spec.name) if spec.launch == "detached" else None
