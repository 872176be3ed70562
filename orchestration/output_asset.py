"""The output of a stream as an asset: a run of it runs the stream, supervised.

An output without partitions is materialised by such a run, by ``laminar_run``, and by the observer
as rows become visible. One with partitions is external: a run of the stream is not a run of one of
its hours.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportMissingTypeArgument=false, reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.no_choice import end_without_driver
from laminar_core.orchestration.launching.supervised_run import supervise
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import asset_key, source_key


class OutputForm(dg.Config):
    """Whether to run the stream."""

    start: bool = Field(
        default=False,
        description="true: run the stream, supervised, to its end. false: no driver is started.",
    )


def output_asset(group: Group, spec: StreamSpec) -> dg.AssetsDefinition | dg.AssetSpec:
    """Return the output of a stream."""
    about = dg.AssetSpec(
        asset_key(spec.name, "output"),
        deps=[source_key(spec.name)],
        group_name=spec.name,
        kinds={"pyspark", *spec.kinds},
        owners=[spec.owner],
        tags=spec.tags,
        code_version=spec.code_version,
        description=spec.description or None,
        partitions_def=spec.output_partitions and spec.output_partitions.definition,
    )
    return _materialised(group, spec, about) if spec.output_partitions is None else about


def _materialised(group: Group, spec: StreamSpec, about: dg.AssetSpec) -> dg.AssetsDefinition:
    @dg.asset(
        key=about.key,
        deps=about.deps,
        group_name=about.group_name,
        kinds=about.kinds,
        owners=about.owners,
        tags=spec.tags,
        code_version=about.code_version,
        description=about.description,
        output_required=False,
    )
    def output(
        context: dg.AssetExecutionContext,
        config: OutputForm,
        laminar_checkpoints: CheckpointStoreResource,
        laminar_driver: SparkDriverClient,
    ) -> Iterator[dg.MaterializeResult]:
        if not config.start:
            job = group.job_name("run")
            how = f"launch {job}, or set `start: true` in the config of the output"
            end_without_driver(context, spec.name, how)
            return
        yield supervise(context, spec, laminar_checkpoints, laminar_driver)

    return output
