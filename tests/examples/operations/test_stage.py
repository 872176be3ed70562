"""Steps are timed, waits give up and say what they saw."""

import pytest
from rich.console import Console

from examples.operations.client import UiError
from examples.operations.stage import POLL_MS, Stage, StepFailed
from laminar_core.host.clock import ManualClock


@pytest.fixture
def stage() -> Stage:
    return Stage(Console(record=True, width=200, quiet=False), ManualClock())


def test_a_step_has_its_time_and_its_facts(stage: Stage) -> None:
    with stage.step("first"):
        stage.note("saw something")
        stage.clock.wait_ms(1500)
    with stage.step("second"):
        pass
    first, second = stage.steps
    assert (first.name, first.took_s, first.saw, first.failed) == (
        "first", 1.5, ("saw something",), None,
    )  # fmt: skip
    assert second.saw == ()


@pytest.mark.parametrize("error", [StepFailed("no"), UiError("no"), OSError("no")])
def test_a_step_that_fails_says_why_and_ends_the_show(stage: Stage, error: Exception) -> None:
    with pytest.raises(StepFailed, match="first: no"), stage.step("first"):
        raise error
    assert stage.steps[0].failed == "no"


def test_an_interrupt_is_not_a_failure_of_the_step(stage: Stage) -> None:
    with pytest.raises(KeyboardInterrupt), stage.step("first"):
        raise KeyboardInterrupt
    assert stage.steps[0].failed == "interrupted"


def test_a_wait_ends_with_what_was_found(stage: Stage) -> None:
    answers = iter([None, None, 7])
    started_ms = stage.clock.monotonic_ms()
    assert stage.wait_until("it", lambda: next(answers), 60) == 7
    assert stage.clock.monotonic_ms() - started_ms == 2 * POLL_MS


def test_a_wait_gives_up_in_time_with_what_was_seen(stage: Stage) -> None:
    started_ms = stage.clock.monotonic_ms()
    with pytest.raises(StepFailed, match="it: not in 30 s; seen: a cow"):
        stage.wait_until("it", lambda: None, 30, lambda: "a cow")
    assert 30_000 <= stage.clock.monotonic_ms() - started_ms <= 31_000
    assert "… 10 s for it; seen: a cow" in stage.console.export_text()


def test_what_is_not_there_yet_may_be_false(stage: Stage) -> None:
    """Only None means: look again."""
    assert stage.wait_until("it", lambda: False, 1) is False
