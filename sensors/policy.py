"""Thresholds of a stream's sensors and checks.

Defaults: a second of alignment deserves action, thirty are an emergency; see
``docs/operations.md``.
"""

from importlib import import_module
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from laminar_core.resources.values import Values
from laminar_core.units import DurationText, duration_ms


def _importable(path: str) -> str:
    module, _, name = path.partition(":")
    if not module or not name.isidentifier():
        raise ValueError("give an importable function, as in my_team.alerts:notify")
    return path


Share = Annotated[float, Field(ge=0, le=1)]


class AlertPolicy(Values):
    """Thresholds of one stream; a duration is a text such as ``"30 seconds"``."""

    flip: bool = Field(
        default=True,
        description="Let the alignment sensor change the mode; False: it only reports.",
    )
    recover: bool = Field(
        default=True,
        description="Let the recovery sensor start the job again; False: it only alerts.",
    )
    alignment_act: DurationText = Field(
        default="1 second",
        description="Force unaligned checkpoints when the p99 of the window is longer.",
    )
    alignment_hard: DurationText = Field(
        default="30 seconds", description="Force them when one checkpoint alone takes longer."
    )
    alignment_window: Annotated[int, Field(ge=1)] = Field(
        default=20, description="Checkpoints of which the p99 is taken."
    )
    alignment_samples_min: Annotated[int, Field(ge=1)] = Field(
        default=3, description="Fewer samples give no p99."
    )
    alignment_calm: DurationText = Field(
        default="200 milliseconds",
        description="Flip back when the in-flight rows of each recent checkpoint would have been "
        "worked off in this time.",
    )
    calm_checkpoints: Annotated[int, Field(ge=1)] = Field(
        default=10, description="How many in a row must be calm."
    )
    cooldown: DurationText = Field(
        default="1 minute", description="Between two changes of the mode."
    )
    heartbeat_max: DurationText = Field(
        default="30 seconds", description="A driver that is silent for longer is taken for dead."
    )
    checkpoint_age_max: DurationText = Field(
        default="10 minutes",
        description="A job without a completed checkpoint for longer is stuck.",
    )
    recoveries_max: Annotated[int, Field(ge=0)] = Field(
        default=5, description="Automatic recoveries in one hour; then a person has to look."
    )
    source_keeps: DurationText | None = Field(
        default=None, description="How long the source keeps its rows; None: for ever."
    )
    source_margin: DurationText = Field(
        default="6 hours", description="Warn when rows that a restore needs expire sooner."
    )
    lag_shrinks_within: DurationText = Field(
        default="15 minutes",
        description="After a start, warn if the lag of a source has not become smaller for longer.",
    )
    lag_caught_up: DurationText = Field(
        default="1 minute",
        description="A source whose oldest unread row is younger has caught up after a start.",
    )
    inflight_share_max: Share = Field(
        default=0.5, description="In-flight bytes of all bytes of a checkpoint."
    )
    chain_length_max: Annotated[int, Field(ge=1)] = Field(
        default=16,
        description="Segments that a restore puts on top of each other for one subtask; neighbours "
        "that have no key group in common count as one.",
    )
    commit_age_max: DurationText = Field(
        default="1 minute",
        description="The sinks are stuck when completed output is not visible for longer.",
    )
    transaction_margin: DurationText = Field(
        default="5 minutes",
        description="Warn when output that waits for its commit expires sooner; and no later than "
        "when half of the time is over that it had when its checkpoint completed.",
    )
    drill_age_max: DurationText = Field(
        default="2 days", description="Longest time since the last passed drill."
    )
    hook: Annotated[str, AfterValidator(_importable)] | None = Field(
        default=None,
        description="module:function that gets each alert (``laminar_core.orchestration.Alert``).",
    )

    @model_validator(mode="after")
    def _thresholds_are_ordered(self) -> Self:
        names = ("alignment_calm", "alignment_act", "alignment_hard")
        times_ms = [duration_ms(getattr(self, name)) for name in names]
        if not times_ms[0] < times_ms[1] <= times_ms[2]:
            raise ValueError(
                "alignment_calm must be shorter than alignment_act, which must not be longer than "
                "alignment_hard"
            )
        return self

    def load_hook(self) -> object | None:
        """Import the hook; None if there is none.

        Raises:
            ImportError: there is no such module.
            AttributeError: it has no such function.
        """
        if self.hook is None:
            return None
        module, _, name = self.hook.partition(":")
        return getattr(import_module(module), name)
