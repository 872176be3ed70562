"""The pictures in ``docs/images``: taken of a demonstration while it runs.

python -m examples.operations --screenshots docs/images
"""

from pathlib import Path

from examples.operations.browser import (
    Shot,
    asset_page,
    browsing,
    launchpad,
    lineage,
    sensor_page,
)
from examples.operations.steps import Operations
from laminar_core.resources.names import job_name, partition_of, sensor_name
from laminar_core.sensors.observer.checkpoint_reports import INTEGRITY_CHECK

_A_TICK = 'tbody a:has-text("requested"), table button:has-text("requested")'
"""Selects a sensor's newest tick with requests; a click shows its details."""


def take(operations: Operations, shots: list[Shot], folder: Path) -> None:
    """Take these pictures; what a page has to show for it is part of the shot."""
    folder.mkdir(parents=True, exist_ok=True)
    with browsing(operations.ui.port) as browser:
        pictures = [browser.take(shot, folder) for shot in shots]
    for picture in pictures:
        operations.stage.note(f"{picture.name}: {picture.stat().st_size // 1000} kB")


def while_slow(operations: Operations) -> list[Shot]:
    """Return the screenshots after the sensor has changed the mode."""
    del operations
    return [Shot("alignment", sensor_page(sensor_name("alignment")), ["Tick for"], [_A_TICK])]


def when_calm(operations: Operations) -> list[Shot]:
    """Return screenshots of checkpoints from before, while and after an operator was slow."""
    stream = operations.spec.name
    unaligned = partition_of(operations.unaligned_checkpoint)
    page = asset_page(stream, "checkpoint", "partitions", partition=unaligned)
    return [
        Shot("checkpoints", asset_page(stream, "checkpoint"), ["alignment_ms"], ['text="Plots"']),
        Shot("checkpoint", page, [unaligned, "unaligned"]),
    ]


def at_the_end(operations: Operations) -> list[Shot]:
    """Return the screenshots at the end."""
    stream = operations.spec.name
    integrity = asset_page(stream, "checkpoint", "checks", checkDetail=INTEGRITY_CHECK)
    return [
        Shot("deployment", asset_page(stream, "deployment"), ["What to click"], height=900),
        Shot("recovery", asset_page(stream, "recovery", "events"), ["from_checkpoint"]),
        Shot("recover", launchpad(job_name("recover")), ["Missing required config entry"]),
        Shot("runs", "/runs", [job_name("recover")]),
        # Last: Dagster takes some seconds to sum up what a check says of many checkpoints.
        Shot("lineage", lineage(stream), ["checkpoint", "recovery", "drill"], height=1080),
        Shot("checks", integrity, ["sha256 differs"]),
    ]
