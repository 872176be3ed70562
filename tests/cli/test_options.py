"""Options refuse what they cannot use under their own name."""

import click
import pytest

from laminar_core.cli.options import DURATION, KeyValueType

KEY_VALUE = KeyValueType()


@pytest.mark.parametrize("text", ["1 second", "250 milliseconds", "1 hour 30 minutes"])
def test_a_duration_stays_as_it_was_written(text: str) -> None:
    assert DURATION.convert(text, None, None) == text


@pytest.mark.parametrize("text", ["soon", "", "0 seconds", "-1 seconds", "5 parsecs"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="duration"):
        DURATION.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=b", ("a", "b")),
        ("a=", ("a", "")),
        ("spark.x=-Da=b -Dc=d", ("spark.x", "-Da=b -Dc=d")),
    ],
)
def test_a_setting_is_split_at_its_first_sign(text: str, pair: tuple[str, str]) -> None:
    assert KEY_VALUE.convert(text, None, None) == pair
    assert KEY_VALUE.convert(pair, None, None) == pair


@pytest.mark.parametrize("text", ["a", "", "=b"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="key=value"):
        KEY_VALUE.convert(text, None, None)
