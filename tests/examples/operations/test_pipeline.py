"""The brake is what the file says, and the pipeline is that of the shipped payments otherwise."""

from pathlib import Path

import pytest

from examples.operations.pipeline import pipeline, row_us, set_brake
from laminar_core.jobs.payments import pipeline as payments
from laminar_core.jobs.payments_data import write_payments
from laminar_core.plan.plan import INPUTS_KEY, Plan


def test_without_a_file_the_brake_is_off(tmp_path: Path) -> None:
    brake = tmp_path / "brake"
    assert row_us(brake) == 0
    set_brake(brake, 2.5)
    assert row_us(brake) == 2.5
    set_brake(brake, None)
    assert row_us(brake) == 0
    set_brake(brake, None)


@pytest.mark.parametrize("half_written", ["", "2.", "two"])
def test_a_file_that_makes_no_sense_does_not_stop_the_job(
    tmp_path: Path, half_written: str
) -> None:
    (tmp_path / "brake").write_text(half_written)
    assert row_us(tmp_path / "brake") in {0, 2}


def test_what_has_state_is_that_of_the_shipped_payments(tmp_path: Path) -> None:
    source, sink = str(tmp_path / "in"), str(tmp_path / "out")
    write_payments(source, rows=10, files=1, merchants=2)
    braked = pipeline(source, sink, str(tmp_path / "brake")).plan()
    shipped = payments(source, sink).plan()
    assert described(braked) == described(shipped)


def described(plan: Plan) -> dict:
    """Return the descriptions of the operators, without their inputs."""
    own = {name: dict(d) for name, d in plan.descriptions().items() if name != "brake"}
    for description in own.values():
        description.pop(INPUTS_KEY, None)
    return own
