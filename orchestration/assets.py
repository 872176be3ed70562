"""The assets that a stream's data flows through, and the job that runs a stream.

A run of the output runs the stream, supervised, as the job does. A checkpoint is a partition. All
but the output are external: they are created in the store, and the observer reports them.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportMissingTypeArgument=false, reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

import dagster as dg

from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.launching.supervised_run import run_supervised, supervise
from laminar_core.orchestration.output_asset import output_asset
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import (
    StreamAsset,
    asset_key,
    checkpoint_key,
    checkpoint_partitions,
)


def asset_definitions(group: Group) -> dg.Definitions:
    """Return source, output, checkpoints and savepoints of each stream, and ``laminar_run``."""
    run = move_job(
        group,
        "run",
        ActForm,
        _run,
        "Run a stream until its input ends or it is stopped.",
        waits=False,
    )
    return dg.Definitions(
        assets=[each for spec in group for each in _assets(group, spec)], jobs=[run]
    )


def _run(move: Move[ActForm]) -> None:
    context, spec, driver = move.context, move.spec, move.drivers.supervised
    if spec.output_partitions is not None:  # The observer reports them as they become complete.
        supervised = run_supervised(context, spec, move.checkpoints, driver)
        context.add_output_metadata(supervised.metadata())
        return
    done = supervise(context, spec, move.checkpoints, driver)
    versions = {**(done.tags or {}), "dagster/code_version": spec.code_version}
    if done.data_version is not None:
        versions["dagster/data_version"] = done.data_version.value
    key = asset_key(spec.name, "output")
    context.log_event(dg.AssetMaterialization(key, metadata=done.metadata, tags=versions))


def _assets(group: Group, spec: StreamSpec) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    return [
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
        output_asset(group, spec),
    ]


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
        description="Consistent cuts of the stream, one partition each. An attempt that failed is "
        "a partition that stays missing; its historical events say why.",
    )
