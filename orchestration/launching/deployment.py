"""[stream, deployment]: the start of a stream's driver, and the jobs that do it."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportMissingTypeArgument=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

from collections.abc import Iterator
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.import_job import build_import_job
from laminar_core.orchestration.launching.launch import FIRST, Drivers, StartedDriver
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.launching.no_choice import end_without_driver
from laminar_core.orchestration.launching.restart import Restarter
from laminar_core.orchestration.launching.restore_choice import refused, timeline
from laminar_core.orchestration.launching.restore_forms import RestartForm
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.recovery import RestoreFrom, StartFresh
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import StreamJob, asset_key, source_key
from laminar_core.store.checkpoint_store import CheckpointStore

_START_FROM = (
    "newest: the newest intact checkpoint. fresh: without state, which is refused as long as there "
    "is a checkpoint to continue from."
)


class StartForm(RestartForm):
    """Where to start from; this has no default."""

    start_from: Literal["newest", "fresh"] = Field(description=_START_FROM)


class DeploymentForm(RestartForm):
    """Config of the deployment asset; a run that does not say where to start from starts nothing.

    So *Materialize all* starts no driver.
    """

    start_from: Literal["newest", "fresh", "nothing"] = Field(
        default="nothing", description=f"{_START_FROM} nothing: no driver is started."
    )


def deployment_definitions(group: Group) -> dg.Definitions:
    """Return an asset per stream, ``laminar_start``, and ``laminar_import_savepoint``."""
    start = move_job(
        group,
        "start",
        StartForm,
        _start,
        "Start the driver of a stream: as a process of its own, which survives Dagster, or inside "
        "the run, as its definition says.",
        FIRST,
        waits=False,  # A run that was killed must not keep a stream from coming back.
    )
    return dg.Definitions(
        assets=[_deployment_asset(group, spec) for spec in group],
        jobs=[start, build_import_job(group)],
    )


def _start(move: Move[StartForm]) -> None:
    metadata, started = start(move)
    versions: dict[str, str] = {
        "dagster/data_version": str(started.generation),
        "dagster/code_version": move.spec.code_version,
    }
    key = asset_key(move.spec.name, "deployment")
    move.context.log_event(dg.AssetMaterialization(key, metadata=metadata, tags=versions))
    move.context.add_output_metadata(metadata)


def start(move: Move[StartForm]) -> tuple[dict[str, Any], StartedDriver]:
    """Start the driver of a stream; return what is known of it then.

    Raises:
        dagster.Failure: no driver was started.
    """
    form = move.form
    if (form.start_from, form.running_driver) == ("fresh", "stop"):
        raise refused("a driver that is stopped leaves a checkpoint to continue from: cancel it")
    restarter = Restarter(move, form.expected_generation)
    started, settled = restarter.start(
        form.request(restarter.actor), lambda store: start_words(store, form.start_from)
    )
    metadata = {
        **started.metadata(),
        "why": form.reason,
        "who": restarter.actor.name,
        "driver_before": settled.what,
    }
    return metadata, started


def _deployment_asset(group: Group, spec: StreamSpec) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(spec.name, "deployment"),
        deps=[source_key(spec.name)],
        group_name=spec.name,
        kinds={"pyspark", "python"},
        owners=[spec.owner],
        tags=spec.tags,
        code_version=spec.code_version,
        output_required=False,
        description=_description(group, spec),
    )
    def deployment(
        context: dg.AssetExecutionContext,
        config: DeploymentForm,
        laminar_checkpoints: CheckpointStoreResource,
        laminar_driver: SparkDriverClient,
        laminar_launcher: DriverLauncher,
    ) -> Iterator[dg.MaterializeResult]:
        if config.start_from == "nothing":
            job = group.job_name("start")
            how = f"launch {job}, or set `start_from: newest` or `fresh` in the config"
            end_without_driver(context, spec.name, how)
            return
        drivers = Drivers(laminar_driver, laminar_launcher)
        asked = StartForm(**config.model_dump())
        move = Move(context, spec, laminar_checkpoints, drivers, asked, group.name)
        metadata, started = start(move)
        yield dg.MaterializeResult(
            metadata=metadata, data_version=dg.DataVersion(str(started.generation))
        )

    return deployment


def _description(group: Group, spec: StreamSpec) -> str:
    """Say where the stream's state is shown: a description is fixed when Dagster loads it."""
    acts: tuple[StreamJob, ...] = ("start", "stop", "recover")
    start, stop, recover = map(group.job_name, acts)
    return (
        "The driver that runs the stream; each start is a generation of its own.\n\n"
        "**Is it running?** The check `running` says in one line in what state the stream is, and "
        "what to do; so does `state` in the metadata below.\n\n"
        f"**What to click:** *Jobs*, then `{start}` (start it), `{stop}` (stop it) or `{recover}` "
        f"(go back to a checkpoint), with `stream: {spec.name}`."
    )


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
