"""Dagster's launchpad of a job: its first content, and its answer to a config."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import yaml
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap


def scaffold(job: dg.JobDefinition) -> dict[str, Any]:
    """Return the config that the launchpad shows at first, with every default."""
    snapshot = job.get_job_snapshot()
    schema = snapshot.config_schema_snapshot
    root = schema.get_config_snap(str(snapshot.mode_def_snaps[0].root_config_key))
    return yaml.safe_load(default_values_yaml_from_type_snap(schema, root))


def form_of(job: dg.JobDefinition, **values: object) -> dict[str, Any]:
    """Return the scaffold of a job with one form, and ``values`` in it."""
    ((op, shown),) = scaffold(job)["ops"].items()
    return {"ops": {op: {"config": {**shown["config"], **values}}}}


def problems(job: dg.JobDefinition, config: Mapping[str, Any]) -> list[str]:
    """Return the errors of a config; Launch is disabled if there are any."""
    try:
        dg.validate_run_config(job, config)
    except dg.DagsterInvalidConfigError as error:
        return [each.message for each in error.errors]
    return []
