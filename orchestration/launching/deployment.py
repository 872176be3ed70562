"""[stream, deployment]: the start of a stream's driver, and the job that does it."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportMissingTypeArgument=false, reportUnknownMemberType=false, reportUnknownParameterType=false

from typing import Literal

import dagster as dg
from pydantic import Field

from laminar_core.orchestration.acts import act_tags
from laminar_core.orchestration.launching.import_job import build_import_job
from laminar_core.orchestration.launching.launch import FIRST, Drivers
from laminar_core.orchestration.launching.restart import Restarter
from laminar_core.orchestration.launching.restore_choice import refused, timeline
from laminar_core.orchestration.launching.restore_forms import RestartForm
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.recovery import RestoreFrom, StartFresh
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.detached import DetachedDriver
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import asset_key, job_name, source_key
from laminar_core.store.checkpoint_store import CheckpointStore


class StartForm(RestartForm):
    """Where to start from; this has no default."""

    start_from: Literal["newest", "fresh"] = Field(
        description="newest: the newest intact checkpoint. fresh: without state, which is refused "
        "as long as there is a checkpoint to continue from."
    )


def deployment_definitions(spec: StreamSpec) -> dg.Definitions:
    """Return the asset, ``{stream}_start``, and ``{stream}_import_savepoint``."""
    deployment = _deployment_asset(spec)
    start = dg.define_asset_job(
        job_name(spec.name, "start"),
        selection=[deployment],
        description=f"Start the driver of {spec.name}: {_LAUNCHED[spec.launch]}.",
        executor_def=dg.in_process_executor,
        tags=act_tags(spec) | FIRST,
    )
    return dg.Definitions(assets=[deployment], jobs=[start, build_import_job(spec)])


_LAUNCHED = {
    "detached": "as a process of its own, which survives Dagster",
    "supervised": "inside the run, which ends with it",
}


def _deployment_asset(spec: StreamSpec) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(spec.name, "deployment"),
        deps=[source_key(spec.name)],
        group_name=spec.name,
        kinds={"pyspark", "python"},
        owners=[spec.owner],
        tags=spec.tags,
        code_version=spec.code_version,
        description="The driver that runs the stream; each start is a generation of its own.",
    )
    def deployment(
        context: dg.AssetExecutionContext,
        config: StartForm,
        checkpoints: CheckpointStoreResource,
        driver: SparkDriverClient,
        launcher: DetachedDriver,
    ) -> dg.MaterializeResult:
        if (config.start_from, config.running_driver) == ("fresh", "stop"):
            raise refused(
                "a driver that is stopped leaves a checkpoint to continue from: cancel it"
            )
        restarter = Restarter(
            context, spec, checkpoints, Drivers(driver, launcher), config.expected_generation
        )
        started, settled = restarter.start(
            config.request(restarter.actor), lambda store: start_words(store, config.start_from)
        )
        return dg.MaterializeResult(
            metadata={
                **started.metadata(),
                "why": config.reason,
                "who": restarter.actor.name,
                "driver_before": settled.what,
            },
            data_version=dg.DataVersion(str(started.generation)),
        )

    return deployment


def start_words(store: CheckpointStore, start_from: Literal["newest", "fresh"]) -> list[str]:
    """Return the arguments of ``laminar run`` for a start.

    Refuse a start that contradicts the store.

    Raises:
        dagster.Failure: there is no checkpoint to continue from, or there is one despite ``fresh``.
        StorageUnavailable: the store did not answer.
    """
    if start_from == "newest":
        # Which one it is, and whether it is whole, is for the new generation to decide.
        if next(timeline(store), None) is None:
            raise refused(
                f"job {store.job} has no completed checkpoint: choose `start_from: fresh` to start "
                "it without state"
            )
        return []
    decision = store.choose_checkpoint().decision
    if isinstance(decision, RestoreFrom):
        raise refused(
            f"job {store.job} has checkpoint {decision.checkpoint_id}: choose `start_from: newest` "
            "to continue from it, or give the stream another name to start without state"
        )
    return [] if isinstance(decision, StartFresh) else ["--allow-fresh"]
