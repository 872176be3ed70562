"""Values that configuration is made of: what is refused, and that the field is named."""

import pytest
from pydantic import ValidationError

from laminar_core.resources.values import Values
from laminar_core.units import DurationText


class Pause(Values):
    length: DurationText = "1 second"


def test_a_duration_is_kept_as_it_was_written() -> None:
    assert Pause(length="1 hour 30 minutes").length == "1 hour 30 minutes"


@pytest.mark.parametrize("text", ["", "soon", "10", "-1 second", "0 seconds"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValidationError, match="length"):
        Pause(length=text)


def test_a_mistyped_field_is_an_error() -> None:
    with pytest.raises(ValidationError, match="lenght"):
        Pause.model_validate({"lenght": "1 second"})


def test_values_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Pause().length = "2 seconds"  # pyright: ignore[reportAttributeAccessIssue]
