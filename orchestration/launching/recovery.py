"""[stream, recovery]: restores of a checkpoint, and the jobs that do them.

The jobs belong to a group of streams, so they choose a checkpoint by its number. The asset has the
partitions of [stream, checkpoint]. Both read the checkpoint whole before a driver is started.
"""

# Dagster's decorators, functions and forms are only partly typed.
# pyright: reportUnknownArgumentType=false, reportMissingTypeArgument=false, reportUnknownMemberType=false, reportUnknownParameterType=false

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import dagster as dg

from laminar_core.orchestration.acts import in_one_line
from laminar_core.orchestration.checkpoint_choices import Newest, restore_request, restore_words
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.dry_run import DryRun, dry_run
from laminar_core.orchestration.launching.launch import FIRST, Drivers
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.launching.no_choice import end_without_driver
from laminar_core.orchestration.launching.restart import Restarter, Restored
from laminar_core.orchestration.launching.restore_choice import Chosen, back_by
from laminar_core.orchestration.launching.restore_forms import (
    RecoverForm,
    RecoveryForm,
    RescaleForm,
    RollbackForm,
)
from laminar_core.orchestration.launching.supervised_run import Context
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.locked_database import until_unlocked
from laminar_core.resources.names import (
    StreamJob,
    asset_key,
    checkpoint_key,
    checkpoint_of,
    checkpoint_partitions,
)
from laminar_core.resources.run_actor import child_environment
from laminar_core.sensors.facts.integrity_records import found_whole_in
from laminar_core.sensors.observer.checkpoint_reports import evaluation_of, integrity

F = TypeVar("F", RecoverForm, RollbackForm, RescaleForm)


def recovery_definitions(group: Group) -> dg.Definitions:
    """Return an asset per stream, and the jobs with forms."""
    return dg.Definitions(
        assets=[_recovery_asset(group, spec) for spec in group],
        jobs=[
            _form_job(
                group,
                "recover",
                RecoverForm,
                _recover,
                "Start a stream again from a checkpoint, or from one before a time; or only "
                "report what that would do.",
                FIRST,
            ),
            _form_job(
                group,
                "rollback",
                RollbackForm,
                _roll_back,
                "Go back by a number of completed checkpoints; later output is withdrawn.",
            ),
            _form_job(
                group,
                "rescale",
                RescaleForm,
                _rescale,
                "Stop a stream, and continue from its last checkpoint with other workers.",
            ),
        ],
    )


def _recovery_asset(group: Group, spec: StreamSpec) -> dg.AssetsDefinition:
    recover = group.job_name("recover")

    @dg.asset(
        key=asset_key(spec.name, "recovery"),
        deps=[checkpoint_key(spec.name)],
        partitions_def=checkpoint_partitions(spec.name),
        group_name=spec.name,
        kinds={"pyspark", "python"},
        owners=[spec.owner],
        tags=spec.tags,
        code_version=spec.code_version,
        output_required=False,
        description="The stream, started again from a checkpoint: from which, why, and what it "
        "cost. A partition is materialised only with a `reason` in the config; "
        f"`{recover}` asks for everything in a form.",
    )
    def recovery(
        context: dg.AssetExecutionContext,
        config: RecoveryForm,
        laminar_checkpoints: CheckpointStoreResource,
        laminar_driver: SparkDriverClient,
        laminar_launcher: DriverLauncher,
    ) -> Iterator[dg.MaterializeResult]:
        if not config.reason:
            how = f"give a `reason` in the config of the recovery, or launch {recover}"
            end_without_driver(context, spec.name, how)
            return
        drivers = Drivers(laminar_driver, laminar_launcher)
        move = Move(context, spec, laminar_checkpoints, drivers, config, group.name)
        restarter = Restarter(move, config.expected_generation)
        with in_one_line():  # `dagster asset materialize` runs without the check, so then it reads.
            restarter.reads.trust(
                found_whole_in(
                    context.instance, spec.name, context.run.run_id, context.partition_key
                )
            )
            chosen = _chosen(restarter, checkpoint_of(context.partition_key))
        restored = restarter.restore(config.request(restarter.actor), chosen)
        yield dg.MaterializeResult(
            metadata=restored.metadata(),
            data_version=dg.DataVersion(restored.data_version),
            tags=_provenance(spec, restored),
        )

    return recovery


def _form_job(
    group: Group,
    name: StreamJob,
    form: type[F],
    act: Callable[[Restarter, F], Restored | DryRun],
    description: str,
    tags: dict[str, str] | None = None,
) -> dg.JobDefinition:
    def carry_out(move: Move[F]) -> None:
        context, spec = move.context, move.spec
        restarter = Restarter(move, move.form.expected_generation)
        try:
            came_of_it = act(restarter, move.form)
        finally:
            _log_integrity(restarter)
        if isinstance(came_of_it, Restored):
            _report(context, spec, came_of_it)
        context.add_output_metadata(came_of_it.metadata())

    return move_job(group, name, form, carry_out, description, tags)


def _recover(restarter: Restarter, form: RecoverForm) -> Restored | DryRun:
    if form.dry_run:
        return _say(restarter, restore_words(form.restore))
    with in_one_line():
        chosen = restarter.choose(restore_request(form.restore))
    _log_integrity(restarter)
    # A driver that is ended first may complete one more, which is the newest then.
    stays = not isinstance(form.restore, Newest) or form.running_driver == "refuse"
    return restarter.restore(form.request(restarter.actor), chosen if stays else None)


def _roll_back(restarter: Restarter, form: RollbackForm) -> Restored:
    with in_one_line():
        back_to = back_by(restarter.store, form.by)
        restarter.context.log.info(
            "rolling back by %s checkpoints, to checkpoint %s", form.by, back_to
        )
        chosen = _chosen(restarter, back_to)
    _log_integrity(restarter)
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
    return restarter.choose(RestoreRequest(checkpoint_id=checkpoint_id))


def _log_integrity(restarter: Restarter) -> None:
    """Show on each checkpoint that was read whole what came of it, also if the run fails.

    The recovery sensor does not choose a checkpoint again that was found damaged.
    """
    for checkpoint_id, sha256, report in restarter.reads.take_reports():
        verdict = integrity(report, sha256)
        evaluation = evaluation_of(restarter.store.job, checkpoint_id, verdict)
        restarter.context.log_event(evaluation)  # pyright: ignore[reportArgumentType] - Dagster takes evaluations too


def _report(context: Context, spec: StreamSpec, restored: Restored) -> None:
    """Show the same as the asset does, where no partition was picked."""
    partitions = checkpoint_partitions(spec.name).name
    assert partitions is not None, "it has one"
    keys = [restored.chosen.partition]
    until_unlocked(lambda: context.instance.add_dynamic_partitions(partitions, keys))
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
