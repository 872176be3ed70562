"""Functions that all housekeeping jobs have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg

from laminar_core.driver.drill.drill import HOLD_MS
from laminar_core.host.clock import Clock
from laminar_core.orchestration.acts import (
    ActForm,
    act_job,
    begin_act,
    form_schema,
    in_one_line,
)
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.records.actor import Actor
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import (
    CHECKPOINTS_KEY,
    StreamAsset,
    StreamCheck,
    StreamJob,
    asset_key,
)
from laminar_core.resources.run_actor import actor_of_run
from laminar_core.sensors.judgements import Verdict
from laminar_core.sensors.observer.check_events import evaluation
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore

F = TypeVar("F", bound=ActForm)

_RUNTIME_S_MAX = str(HOLD_MS // 1000)
"""Time limit, equal to a drill's hold on its checkpoint; a job may read or delete all files of a
stream.
"""


@dataclass(frozen=True, slots=True)
class Chore:
    """A run that looks after what a stream has stored."""

    context: dg.OpExecutionContext
    spec: StreamSpec
    store: CheckpointStore
    store_uri: str
    clock: Clock
    actor: Actor

    @property
    def audit(self) -> AuditLog:
        """Return the audit log of the job."""
        return AuditLog(self.store.objects, self.store.paths, self.clock.now_ms)

    def materialize(
        self, asset: StreamAsset, metadata: dict[str, Any], tags: dict[str, str] | None = None
    ) -> None:
        """Report a completed act on an asset."""
        key = asset_key(self.spec.name, asset)
        self.context.log_event(dg.AssetMaterialization(key, metadata=metadata, tags=tags))

    def observe(self, asset: StreamAsset, metadata: dict[str, Any]) -> None:
        """Report an observation of an asset."""
        key = asset_key(self.spec.name, asset)
        self.context.log_event(dg.AssetObservation(key, metadata=metadata))

    def evaluate(self, check: StreamCheck, verdict: Verdict) -> None:
        """Report the verdict of one of the stream's checks."""
        # Not runless: Dagster keeps only one of those per check.
        self.context.log_event(evaluation(self.spec.name, check, verdict))  # pyright: ignore[reportArgumentType] - Dagster takes evaluations too


def chore_job(  # noqa: PLR0913 - what a job is made of
    group: Group,
    name: StreamJob,
    form: type[F],
    work: Callable[[Chore, F], None],
    clock: Clock,
    *,
    description: str,
    resources: frozenset[str] = frozenset(),
    pool: str | None = None,
) -> dg.JobDefinition:
    """Return a job that calls ``work`` with the config of a user or a schedule.

    ``resources`` are needed beside the store; ``pool`` limits how many of them run at a time.
    """

    @dg.op(
        name=group.job_name(name),
        config_schema=form_schema(form, group),
        description=description,
        required_resource_keys={CHECKPOINTS_KEY, *resources},
        pool=pool,
    )
    def op(context: dg.OpExecutionContext) -> None:
        spec, filled = begin_act(context, group, name, form)
        with in_one_line():
            work(_chore(context, spec, clock), filled)

    return act_job(group, name, op, description, {"dagster/max_runtime": _RUNTIME_S_MAX})


def _chore(context: dg.OpExecutionContext, spec: StreamSpec, clock: Clock) -> Chore:
    checkpoints = getattr(context.resources, CHECKPOINTS_KEY)
    assert isinstance(checkpoints, CheckpointStoreResource)
    store = checkpoints.open(spec.name)
    if store.claims.newest() is None:
        raise dg.Failure(
            f"the store {checkpoints.uri} has no job {spec.name}: start it first",
            allow_retries=False,
        )
    return Chore(context, spec, store, checkpoints.uri, clock, actor_of_run(context.run))
