"""Commands and answers of a driver are described in words."""

import pytest

from laminar_core.driver.commands.texts import describe_result, requested_mode, require_done
from laminar_core.errors import ConfigurationError, LaminarError
from laminar_core.records.commands import ControlOutcome, ControlResult


def result(outcome: ControlOutcome = "completed", **fields) -> ControlResult:
    return ControlResult(outcome=outcome, generation=1, answered_at_ms=1, **fields)


def mode(timeout_ms: int | None, always: int = 0) -> ControlResult:
    details = {"alignment_timeout_ms": timeout_ms, "edges": 3, "edges_always_aligned": always}
    return result(details=details)


@pytest.mark.parametrize(
    ("text", "mode"),
    [("aligned", "aligned"), ("default", "default"), ("5 seconds", 5000), ("1 microsecond", 1)],
)
def test_a_mode_is_a_word_or_a_time(text, mode):
    assert requested_mode(text) == mode


def test_another_mode_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigurationError, match="aligned, unaligned, default, or a time"):
        requested_mode("faster")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (result(checkpoint_id=3), "checkpoint 3 completed"),
        (result(checkpoint_id=3, savepoint="/s"), "checkpoint 3 is the savepoint /s"),
        (mode(None), "checkpoints align from now on"),
        (mode(0), "barriers overtake at once from now on"),
        (mode(9, always=1), "barriers overtake after 9 ms from now on; 1 of 3 edges always align"),
        (result(reason="the job has finished"), "the job has finished"),
        (
            result(checkpoint_id=3, reason="the job has stopped"),
            "checkpoint 3 completed, the job has stopped",
        ),
        (result(), "done"),
        (result("refused", reason="no", checkpoint_id=3), "no"),
    ],
)
def test_an_answer_in_a_sentence(answer, says):
    assert describe_result(answer) == says


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ("refused", ConfigurationError),
        ("expired", ConfigurationError),
        ("failed", LaminarError),
        ("interrupted", LaminarError),
    ],
)
def test_only_what_is_done_passes(outcome, error):
    require_done("payments", 7, result())
    with pytest.raises(error, match=f"{outcome} command 7 for job payments: no disk") as caught:
        require_done("payments", 7, result(outcome, reason="no disk"))
    assert type(caught.value) is error
