"""The assets, checks and jobs of one stream.

[stream, source] ──> [stream, output]         a run of it runs the stream, supervised
        └──────────> [stream, checkpoint]     one partition per completed checkpoint
"""

import warnings

import dagster as dg

from orchestration.spec import StreamSpec
from orchestration.supervised_run import supervise
from resources.checkpoints import CheckpointStoreResource
from resources.names import checkpoint_key, checkpoint_partitions, source_key
from resources.spark_driver import SparkDriverClient
from sensors.checkpoint_reporter import build_checkpoint_reporter
from sensors.checkpoint_reports import (
    INTEGRITY_CHECK,
    check_integrity,
    integrity_evaluation,
)

_TAGS = {"dagster/max_retries": "0"}
"""The driver is restarted by its client; a retry by Dagster would come on top."""


def asset_definitions(spec: StreamSpec) -> dg.Definitions:
    """Source, output and checkpoints, what runs the stream and what verifies a checkpoint."""
    output = _output_asset(spec)
    run_job = dg.define_asset_job(
        f"{spec.name}_run",
        selection=[output],
        description=f"Run {spec.name} until its input ends or it is stopped.",
        executor_def=dg.in_process_executor,
        tags=_TAGS,
    )
    return dg.Definitions(
        assets=[_source_spec(spec), _checkpoint_spec(spec), output],
        asset_checks=[_integrity_check(spec)],
        jobs=[run_job, _verify_job(spec)],
        sensors=[build_checkpoint_reporter(spec.name)],
    )


def _source_spec(spec: StreamSpec) -> dg.AssetSpec:
    return dg.AssetSpec(
        source_key(spec.name),
        group_name=spec.name,
        owners=[spec.owner],
        description="Where the stream reads; observed at each reported checkpoint.",
    )


def _checkpoint_spec(spec: StreamSpec) -> dg.AssetSpec:
    return dg.AssetSpec(
        checkpoint_key(spec.name),
        deps=[source_key(spec.name)],
        partitions_def=checkpoint_partitions(spec.name),
        group_name=spec.name,
        kinds={"pyspark", "arrow"},
        owners=[spec.owner],
        description="Consistent cuts of the stream, one partition each.",
    )


def _output_asset(spec: StreamSpec) -> dg.AssetsDefinition:
    @dg.asset(
        key=[spec.name, "output"],
        deps=[source_key(spec.name)],
        group_name=spec.name,
        kinds={"pyspark", "parquet"},
        owners=[spec.owner],
        code_version=spec.code_version,
        description=spec.description or None,
    )
    def output(
        context: dg.AssetExecutionContext,
        checkpoints: CheckpointStoreResource,
        driver: SparkDriverClient,
    ) -> dg.MaterializeResult:
        return supervise(context, spec, checkpoints, driver)

    return output


def _integrity_check(spec: StreamSpec) -> dg.AssetChecksDefinition:
    with warnings.catch_warnings():
        # Partitioned checks are a preview; the check itself is a plain function of the store.
        warnings.filterwarnings("ignore", message=".*partitions_def on an AssetCheckSpec")

        @dg.asset_check(
            asset=checkpoint_key(spec.name),
            name=INTEGRITY_CHECK,
            partitions_def=checkpoint_partitions(spec.name),
            blocking=True,
            description="Every part that the manifest names is there and has its digest.",
        )
        def manifest_integrity(
            context: dg.AssetCheckExecutionContext, checkpoints: CheckpointStoreResource
        ) -> dg.AssetCheckResult:
            return check_integrity(checkpoints.open(spec.name), int(context.partition_key))

    return manifest_integrity


def _verify_job(spec: StreamSpec) -> dg.JobDefinition:
    """The check on its own, for a checkpoint that somebody picks."""

    @dg.op(name=f"{spec.name}_verify_checkpoint")
    def verify(context: dg.OpExecutionContext, checkpoints: CheckpointStoreResource) -> None:
        store = checkpoints.open(spec.name)
        evaluation = integrity_evaluation(store, int(context.partition_key))
        context.log_event(evaluation)  # pyright: ignore[reportArgumentType]
        if not evaluation.passed:
            raise dg.Failure(evaluation.description, evaluation.metadata, allow_retries=False)
        context.log.info(evaluation.description)

    @dg.job(
        name=f"{spec.name}_verify",
        description="Read a checkpoint whole and compare it with its manifest.",
        partitions_def=checkpoint_partitions(spec.name),
        executor_def=dg.in_process_executor,
        tags=_TAGS,
    )
    def verify_job() -> None:
        verify()

    return verify_job
