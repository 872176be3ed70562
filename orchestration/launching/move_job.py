"""Jobs with which users move a driver: one op with a form each, one run at a time."""

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
    """One run of the job: its form, and the resources that it uses."""

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
    """Return the job of that name; ``form`` is the config of its op."""

    @dg.op(
        name=job_name(spec.name, name),
        config_schema=form.to_config_schema(),  # pyright: ignore[reportArgumentType] - Dagster takes such a schema too
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
    """Return the pool for users' moves of a driver, one after the other; None when supervised.

    A killed run keeps its slot until a user ends it. So a run requested by a sensor is not in the
    pool; of two at once the store refuses the second. A run that supervises must not hold a slot.
    """
    return driver_pool(spec.name) if spec.launch == "detached" else None
