"""A code location with many streams, for measurements; the environment says how many."""

import os
from pathlib import Path

import dagster as dg

from examples.operations.stream import folder
from laminar_core.orchestration import StreamSpec, laminar_definitions
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient

COUNT_VARIABLE = "LAMINAR_STREAMS"


def names_of(count: int) -> list[str]:
    """Return the names of the streams."""
    return [f"stream_{number:03}" for number in range(count)]


def definitions_of(count: int, place: Path) -> dg.Definitions:
    """Return all definitions of ``count`` streams in one store."""
    streams = [StreamSpec(name=name, program=Path("payments.py")) for name in names_of(count)]
    resources = {
        "laminar_checkpoints": CheckpointStoreResource(uri=str(place / "store")),
        "laminar_driver": SparkDriverClient(),
        "laminar_launcher": DetachedDriver(log_directory=str(place / "drivers")),
    }
    return dg.Definitions.merge(
        laminar_definitions(*streams),
        dg.Definitions(executor=dg.in_process_executor, resources=resources),
    )


if COUNT_VARIABLE in os.environ:
    defs = definitions_of(int(os.environ[COUNT_VARIABLE]), folder())
