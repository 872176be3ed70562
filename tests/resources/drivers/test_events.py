"""Lines of a driver's output are parsed as events."""

import pytest

from laminar_core.resources.drivers.events import event_of, sentence


@pytest.mark.parametrize("text", ["", "words", "{", '{"nor": "this"}', "[1]", '{"event": '])
def test_what_is_no_event_is_left_for_people(text: str) -> None:
    assert event_of(text) is None


def test_an_event_without_facts_is_its_name() -> None:
    assert sentence({"event": "data-flowing", "time_ms": 1}) == "data-flowing"
