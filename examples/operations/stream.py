"""The stream of the operations demo: the shipped payments, with a brake and short thresholds.

``LAMINAR_DEMO_FOLDER`` is the folder of one demonstration.
"""

import os
from pathlib import Path

from laminar_core.orchestration import AlertPolicy, CheckpointPolicy, SchedulePolicy, StreamSpec
from laminar_core.orchestration.streams import PAYMENTS, ROOT
from laminar_core.pipeline import RetentionConfig

FOLDER_VARIABLE = "LAMINAR_DEMO_FOLDER"
ROWS_PER_SECOND = 40_000
"""Little, so that two cores also have time for a UI, a daemon and a drill."""

KEEP_LAST = 40

ALERTS = AlertPolicy(
    alignment_window=5,
    alignment_samples_min=2,
    alignment_calm="300 milliseconds",
    calm_checkpoints=5,
    cooldown="10 seconds",
    heartbeat_max="10 seconds",
    checkpoint_age_max="2 minutes",
)
"""Default thresholds for decisions (act at a second of alignment), short ones for patience."""

NOT_BY_ITSELF = SchedulePolicy(
    retention="* * * * *", drill=None, audit=None, orphans=None, costs=None, checks=None
)


def folder() -> Path:
    """Return the folder of this demonstration."""
    return Path(os.environ.get(FOLDER_VARIABLE, ROOT / "build" / "demo-ops"))


def brake_file(below: Path) -> Path:
    """Return the path of the pipeline's brake."""
    return below / "brake"


def slow_payments(below: Path) -> StreamSpec:
    """Derive the demo's stream from the shipped one."""
    return PAYMENTS.model_copy(
        update={
            "program": Path(__file__).with_name("pipeline.py"),
            "arguments": {
                "input": PAYMENTS.arguments["input"],
                "output": str(below / "output"),
                "brake": str(brake_file(below)),
                "rows_per_second": str(ROWS_PER_SECOND),
            },
            "checkpoints": CheckpointPolicy(interval="1 second"),
            "retention": RetentionConfig(keep_last=KEEP_LAST),
            "alerts": ALERTS,
            "schedules": NOT_BY_ITSELF,
        }
    )
