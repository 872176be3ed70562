"""The assets that one stream's data flows through, and the observer that reports on them.

A run of the output runs the stream, supervised. A checkpoint is a partition. All but the output are
external: they are created in the store, and the observer reports them.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportMissingTypeArgument=false, reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

import dagster as dg

from laminar_core.orchestration.launching.supervised_run import supervise
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import (
    StreamAsset,
    asset_key,
    checkpoint_key,
    checkpoint_partitions,
    job_name,
    source_key,
)
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter

_TAGS = {"dagster/max_retries": "0"}
"""The driver is restarted by its client; a retry by Dagster would come on top."""


def asset_definitions(spec: StreamSpec) -> dg.Definitions:
    """Return the assets, the job that runs the stream, and the observer.

    The assets are source, output, checkpoints and savepoints.
    """
    output = _output_asset(spec)
    run_job = dg.define_asset_job(
        job_name(spec.name, "run"),
        selection=[output],
        description=f"Run {spec.name} until its input ends or it is stopped.",
        executor_def=dg.in_process_executor,
        tags={**spec.tags, **_TAGS},
    )
    return dg.Definitions(
        assets=[
            _external(
                spec,
                "source",
                "Where the stream reads; observed with its positions at the newest checkpoint.",
                kinds={"source"},
            ),
            _checkpoint_spec(spec),
            _external(
                spec,
                "savepoint",
                "Checkpoints copied to a place of their own, where retention does not delete them.",
                kinds={"arrow"},
                upstream=checkpoint_key(spec.name),
            ),
            output,
        ],
        jobs=[run_job],
        sensors=[build_checkpoint_reporter(spec.name, spec.alerts)],
    )


def _external(
    spec: StreamSpec,
    name: StreamAsset,
    description: str,
    *,
    kinds: set[str],
    upstream: dg.AssetKey | None = None,
) -> dg.AssetSpec:
    return dg.AssetSpec(
        asset_key(spec.name, name),
        deps=[] if upstream is None else [upstream],
        group_name=spec.name,
        kinds=kinds,
        owners=[spec.owner],
        tags=spec.tags,
        description=description,
    )


def _checkpoint_spec(spec: StreamSpec) -> dg.AssetSpec:
    return dg.AssetSpec(
        checkpoint_key(spec.name),
        deps=[asset_key(spec.name, "output")],
        partitions_def=checkpoint_partitions(spec.name),
        group_name=spec.name,
        kinds={"pyspark", "arrow"},
        owners=[spec.owner],
        tags=spec.tags,
        description="Consistent cuts of the stream, one partition each. Attempts that ended "
        "otherwise are observations.",
    )


def _output_asset(spec: StreamSpec) -> dg.AssetsDefinition:
    @dg.asset(
        key=asset_key(spec.name, "output"),
        deps=[source_key(spec.name)],
        group_name=spec.name,
        kinds={"pyspark", *spec.kinds},
        owners=[spec.owner],
        tags=spec.tags,
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
