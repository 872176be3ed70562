"""Whoever acts through ``laminar`` is named, and refused if the name would spoil the log."""

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.store.attribution import LENGTH_MAX, actor_of_environment, environment_of
from laminar_core.store.owner import this_process

USER = this_process().user


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, Actor(USER)),
        ({"LAMINAR_ACTOR": "", "LAMINAR_RUN_ID": " ", "LAMINAR_ACTOR_KIND": ""}, Actor(USER)),
        ({"LAMINAR_ACTOR": " ann "}, Actor("ann")),
        ({"LAMINAR_RUN_ID": "5f-1"}, Actor(USER, run_id="5f-1")),
        ({"LAMINAR_ACTOR": "sensor x"}, Actor("sensor x", ActorKind.PERSON)),
        ({"LAMINAR_ACTOR_KIND": "schedule"}, Actor(USER, ActorKind.SCHEDULE)),
        (
            {"LAMINAR_ACTOR": "sensor für Zoë", "LAMINAR_RUN_ID": "r" * LENGTH_MAX},
            Actor("sensor für Zoë", run_id="r" * LENGTH_MAX),
        ),
    ],
)
def test_the_environment_says_who_and_in_which_run(environment, said) -> None:
    assert actor_of_environment("why", environment) == said.because("why")


@pytest.mark.parametrize(
    "actor", [Actor("ann"), Actor("sensor x", ActorKind.SENSOR, "why", run_id="r")]
)
def test_a_child_acts_for_whoever_its_environment_was_made_for(actor) -> None:
    assert actor_of_environment(actor.reason, environment_of(actor)) == actor


def test_a_kind_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="'robot': set it to person, sensor, schedule"):
        actor_of_environment("why", {"LAMINAR_ACTOR_KIND": "robot"})


@pytest.mark.parametrize("variable", ["LAMINAR_ACTOR", "LAMINAR_ACTOR_KIND", "LAMINAR_RUN_ID"])
@pytest.mark.parametrize(
    "value", ["ann\nbob", "\x1b[31mann", "a\x00", "a\u2028b", "\udcff", "x" * (LENGTH_MAX + 1)]
)
def test_what_would_spoil_a_line_is_refused_in_one(variable, value) -> None:
    with pytest.raises(ConfigurationError) as caught:
        actor_of_environment("why", {variable: value})
    said = str(caught.value)
    assert said.startswith(f"{variable} is ")
    assert said.isprintable()
    assert len(said) < 350


def test_a_reason_that_is_no_text_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match="which is not UTF-8") as caught:
        actor_of_environment("b\udcff", {})
    assert str(caught.value).isprintable()
