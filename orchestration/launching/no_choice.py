"""Runs that do not ask for a driver: *Materialize all* starts none, and says so.

Dagster materialises whatever is selected, and drops the config of an op that it does not know. So
an asset that starts a driver does it only if its config asks for it. The jobs that start drivers
need no such care: Dagster refuses their form unless it is complete.
"""

# Dagster's functions are only partly typed.
# pyright: reportUnknownMemberType=false

import dagster as dg


def end_without_driver(context: dg.AssetExecutionContext, stream: str, how: str) -> None:
    """Say in one line that this run starts no driver; ``how`` says what would start one."""
    said = f"no driver of {stream} was started, because this run does not ask for one: {how}"
    context.log.warning(said)
    partition = context.partition_key if context.has_partition_key else None
    context.log_event(dg.AssetObservation(context.asset_key, said, partition=partition))
