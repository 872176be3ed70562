"""Whoever acts through ``laminar`` is named, and refused if the name would spoil the log."""

import pytest

from laminar_core.cli.attribution import LENGTH_MAX, Attribution
from laminar_core.errors import ConfigurationError
from laminar_core.store.owner import this_process

USER = this_process().user


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, Attribution(USER)),
        ({"LAMINAR_ACTOR": "", "LAMINAR_RUN_ID": " "}, Attribution(USER)),
        ({"LAMINAR_ACTOR": " ann "}, Attribution("ann")),
        ({"LAMINAR_RUN_ID": "5f-1"}, Attribution(USER, "5f-1")),
        (
            {"LAMINAR_ACTOR": "sensor für Zoë", "LAMINAR_RUN_ID": "r" * LENGTH_MAX},
            Attribution("sensor für Zoë", "r" * LENGTH_MAX),
        ),
    ],
)
def test_the_environment_says_who_and_in_which_run(environment, said) -> None:
    assert Attribution.of_environment(environment) == said


@pytest.mark.parametrize("variable", ["LAMINAR_ACTOR", "LAMINAR_RUN_ID"])
@pytest.mark.parametrize(
    "value", ["ann\nbob", "\x1b[31mann", "a\x00", "a\u2028b", "\udcff", "x" * (LENGTH_MAX + 1)]
)
def test_what_would_spoil_a_line_is_refused_in_one(variable, value) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Attribution.of_environment({variable: value})
    said = str(caught.value)
    assert said.startswith(f"{variable} is ")
    assert said.isprintable()
    assert len(said) < 350
