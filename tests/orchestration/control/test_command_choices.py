"""How a job ends, and how its checkpoints behave, as forms offer it."""

from typing import get_args, get_type_hints

from laminar_core.orchestration.control.command_choices import Aligned, AsStarted, mode_text
from laminar_core.sensors.alignment.decision import Change
from tests.orchestration.acted_on import JOBS
from tests.orchestration.launchpad import form_of, problems


def test_a_mode_is_what_a_command_takes() -> None:
    assert (mode_text(Aligned()), mode_text(AsStarted())) == ("aligned", "default")


def test_whatever_the_sensor_wants_can_be_launched() -> None:
    for mode in get_args(get_type_hints(Change)["mode"]):
        assert problems(JOBS["mode"], form_of(JOBS["mode"], mode={mode: {}})) == []
