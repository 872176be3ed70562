"""The pictures in ``docs/images``: taken of a demonstration while it runs.

python -m orchestration.demo.operations --screenshots docs/images
"""

from pathlib import Path

from orchestration.demo.ops_browser import (
    Shot,
    asset_page,
    browsing,
    launchpad,
    lineage,
    sensor_page,
)
from orchestration.demo.ops_steps import Operations
from resources.names import partition_of

_A_TICK = 'tbody a:has-text("requested"), table button:has-text("requested")'
"""What a sensor's newest look came to; a click shows what it saw."""


def take_all(operations: Operations, folder: Path) -> list[Path]:
    """Take every picture; what a page has to show for it is part of the shot."""
    folder.mkdir(parents=True, exist_ok=True)
    with browsing(operations.ui.port) as browser:
        pictures = [browser.take(shot, folder) for shot in shots(operations)]
    for picture in pictures:
        operations.stage.note(f"{picture.name}: {picture.stat().st_size // 1000} kB")
    return pictures


def shots(operations: Operations) -> list[Shot]:
    """What is photographed, in this order."""
    stream = operations.spec.name
    unaligned = partition_of(operations.unaligned_checkpoint)
    return [
        Shot("lineage", lineage(stream), ["checkpoint", "recovery", "drill"]),
        Shot("checkpoints", asset_page(stream, "checkpoint"), ["alignment_ms"], ['text="Plots"']),
        Shot(
            "checkpoint",
            asset_page(stream, "checkpoint", "partitions", unaligned),
            [unaligned, "unaligned"],
        ),
        Shot("checks", asset_page(stream, "checkpoint", "checks"), ["manifest_integrity"]),
        Shot("recovery", asset_page(stream, "recovery", "events"), ["Materialized"]),
        Shot("recover", launchpad(f"{stream}_recover"), [f"{stream}_recover", "Launch Run"]),
        Shot("alignment", sensor_page(f"{stream}_alignment"), ["Tick for"], [_A_TICK]),
        Shot("runs", "/runs", [f"{stream}_mode", f"{stream}_recovery"]),
    ]
