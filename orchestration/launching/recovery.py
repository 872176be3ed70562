"""[stream, recovery]: restores of a checkpoint, and the jobs that do them.

[stream, checkpoint] ──(manifest_integrity, blocking)──> [stream, recovery]     same partitions
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportMissingTypeArgument=false, reportUnknownMemberType=false, reportUnknownParameterType=false

from collections.abc import Callable
from typing import Any, TypeVar

import dagster as dg

from laminar_core.orchestration.acts import act_tags, in_one_line
from laminar_core.orchestration.launching.dry_run import DryRun, dry_run
from laminar_core.orchestration.launching.launch import FIRST, Drivers
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.launching.restart import Restarter, Restored
from laminar_core.orchestration.launching.restore_choice import Chosen, back_by, choose
from laminar_core.orchestration.launching.restore_forms import (
    RecoverForm,
    RecoveryForm,
    RescaleForm,
    RollbackForm,
)
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.detached import DetachedDriver
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import (
    StreamJob,
    asset_key,
    checkpoint_key,
    checkpoint_of,
    checkpoint_partitions,
    job_name,
)
from laminar_core.resources.run_actor import child_environment
from laminar_core.sensors.facts.integrity_records import found_whole_in
from laminar_core.sensors.observer.checkpoint_reports import (
    INTEGRITY_CHECK,
    evaluation_of,
    integrity,
)

F = TypeVar("F", RecoverForm, RollbackForm, RescaleForm)


def recovery_definitions(spec: StreamSpec) -> dg.Definitions:
    """Return the asset, the job behind the integrity check, and the jobs with forms."""
    recovery = _recovery_asset(spec)
    recovery_job = dg.define_asset_job(
        job_name(spec.name, "recovery"),
        selection=dg.AssetSelection.assets(recovery)
        | dg.AssetSelection.checks(dg.AssetCheckKey(checkpoint_key(spec.name), INTEGRITY_CHECK)),
        description=f"Verify a checkpoint of {spec.name}, then start the driver from it.",
        executor_def=dg.in_process_executor,
        tags=act_tags(spec) | FIRST,
    )
    return dg.Definitions(
        assets=[recovery],
        jobs=[
            recovery_job,
            _form_job(
                spec,
                "recover",
                RecoverForm,
                _recover,
                "Start the job again from a checkpoint, or from one before a time; or only "
                "report what that would do.",
            ),
            _form_job(
                spec,
                "rollback",
                RollbackForm,
                _roll_back,
                "Go back by a number of completed checkpoints; later output is withdrawn.",
            ),
            _form_job(
                spec,
                "rescale",
                RescaleForm,
                _rescale,
                "Stop the job, and continue from its last checkpoint with other workers.",
            ),
        ],
    )


def _recovery_asset(spec: StreamSpec) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(spec.name, "recovery"),
        deps=[checkpoint_key(spec.name)],
        partitions_def=checkpoint_partitions(spec.name),
        group_name=spec.name,
        kinds={"pyspark", "python"},
        owners=[spec.owner],
        tags=spec.tags,
        code_version=spec.code_version,
        description="The stream, started again from a checkpoint: from which, why, and what it "
        "cost.",
    )
    def recovery(
        context: dg.AssetExecutionContext,
        config: RecoveryForm,
        checkpoints: CheckpointStoreResource,
        driver: SparkDriverClient,
        launcher: DetachedDriver,
    ) -> dg.MaterializeResult:
        restarter = Restarter(
            context, spec, checkpoints, Drivers(driver, launcher), config.expected_generation
        )
        with in_one_line():  # `dagster asset materialize` runs without the check, so then it reads.
            restarter.reads.trust(
                found_whole_in(
                    context.instance, spec.name, context.run.run_id, context.partition_key
                )
            )
            chosen = _chosen(restarter, checkpoint_of(context.partition_key))
        restored = restarter.restore(config.request(restarter.actor), chosen)
        return dg.MaterializeResult(
            metadata=restored.metadata(),
            data_version=dg.DataVersion(restored.data_version),
            tags=_provenance(spec, restored),
        )

    return recovery


def _form_job(
    spec: StreamSpec,
    name: StreamJob,
    form: type[F],
    act: Callable[[Restarter, F], Restored | DryRun],
    description: str,
) -> dg.JobDefinition:
    def carry_out(move: Move[F]) -> None:
        context, expected = move.context, move.form.expected_generation
        restarter = Restarter(context, spec, move.checkpoints, move.drivers, expected)
        came_of_it = act(restarter, move.form)
        if isinstance(came_of_it, Restored):
            _report(context, spec, came_of_it)
        context.add_output_metadata(came_of_it.metadata())

    return move_job(spec, name, form, carry_out, description)


def _recover(restarter: Restarter, form: RecoverForm) -> Restored | DryRun:
    if form.dry_run:
        return _say(restarter, form.words)
    with in_one_line():
        chosen = choose(restarter.store, form.restore_request, restarter.reads)
    _log_integrity(restarter, chosen)
    # A driver that is ended first may complete one more, which is the newest then.
    stays = not form.newest or form.running_driver == "refuse"
    return restarter.restore(form.request(restarter.actor), chosen if stays else None)


def _roll_back(restarter: Restarter, form: RollbackForm) -> Restored:
    with in_one_line():
        back_to = back_by(restarter.store, form.by)
        restarter.context.log.info(
            "rolling back by %s checkpoints, to checkpoint %s", form.by, back_to
        )
        chosen = _chosen(restarter, back_to)
    _log_integrity(restarter, chosen)
    return restarter.restore(form.request(restarter.actor), chosen)


def _rescale(restarter: Restarter, form: RescaleForm) -> Restored:
    # What can be refused is refused while the job still runs.
    _say(restarter, ["--workers", str(form.workers)])
    return restarter.restore(form.request(restarter.actor), None)


def _say(restarter: Restarter, words: list[str]) -> DryRun:
    environment = child_environment(restarter.actor)
    said = dry_run(restarter.spec, restarter.checkpoints.uri, environment, words)
    restarter.context.log.info(str(said))
    said.require_start()
    return said


def _chosen(restarter: Restarter, checkpoint_id: CheckpointId) -> Chosen:
    return choose(restarter.store, RestoreRequest(checkpoint_id=checkpoint_id), restarter.reads)


def _log_integrity(restarter: Restarter, chosen: Chosen) -> None:
    """Show on the checkpoint that it was read whole."""
    verdict = integrity(restarter.reads.report(chosen), chosen.sha256)
    evaluation = evaluation_of(restarter.store.job, chosen.checkpoint_id, verdict)
    restarter.context.log_event(evaluation)  # pyright: ignore[reportArgumentType] - Dagster takes evaluations too


def _report(context: dg.OpExecutionContext, spec: StreamSpec, restored: Restored) -> None:
    """Show the same as the asset does, where no partition was picked."""
    partitions = checkpoint_partitions(spec.name).name
    assert partitions is not None, "it has one"
    context.instance.add_dynamic_partitions(partitions, [restored.chosen.partition])
    versions: dict[str, Any] = {
        "dagster/data_version": restored.data_version,
        "dagster/code_version": spec.code_version,
    }
    context.log_event(
        dg.AssetMaterialization(
            asset_key(spec.name, "recovery"),
            partition=restored.chosen.partition,
            metadata=restored.metadata(),
            tags={**versions, **_provenance(spec, restored)},
        )
    )


def _provenance(spec: StreamSpec, restored: Restored) -> dict[str, str]:
    """Exactly which checkpoint: what Dagster notes itself is the newest event of any of them."""
    checkpoint = checkpoint_key(spec.name).to_user_string()
    return {f"dagster/input_data_version/{checkpoint}": restored.chosen.sha256}
