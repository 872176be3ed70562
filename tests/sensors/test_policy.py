"""Thresholds: defaults that mean something, and refusals that name the field."""

import pytest
from pydantic import ValidationError

from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import duration_ms


def test_a_second_is_worth_acting_on_and_half_a_minute_is_an_emergency() -> None:
    policy = AlertPolicy()
    assert duration_ms(policy.alignment_act) == 1_000
    assert duration_ms(policy.alignment_hard) == 30_000


@pytest.mark.parametrize(
    "thresholds",
    [
        {"alignment_calm": "1 second"},
        {"alignment_act": "31 seconds"},
        {"alignment_act": "100 milliseconds"},
    ],
)
def test_thresholds_out_of_order_are_refused(thresholds: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="alignment_calm must be shorter"):
        AlertPolicy.model_validate(thresholds)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cooldown", "a while"),
        ("calm_checkpoints", 0),
        ("inflight_share_max", 1.5),
        ("recoveries_max", -1),
        ("hook", "notify"),
        ("hook", "team.alerts:"),
    ],
)
def test_a_refusal_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        AlertPolicy.model_validate({field: value})


def test_a_hook_is_found() -> None:
    assert AlertPolicy().load_hook() is None
    assert AlertPolicy(hook="operator:add").load_hook() is __import__("operator").add


@pytest.mark.parametrize(
    ("hook", "error"), [("no.such.module:f", ImportError), ("operator:plus", AttributeError)]
)
def test_a_hook_that_is_not_there_is_an_error(hook: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        AlertPolicy(hook=hook).load_hook()
