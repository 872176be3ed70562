"""Options refuse what they cannot use under their own name."""

import click
import pytest

from laminar_core.cli.options import BYTES, DURATION, KEY_VALUE


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


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("7", 7), ("1KiB", 1024), ("64 MiB", 64 << 20), ("2GiB", 2 << 30), (5, 5)],
)
def test_a_size_becomes_bytes(text, size_bytes: int) -> None:
    assert BYTES.convert(text, None, None) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "0MiB", "-1", "1,5GiB", "64M", "much"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        BYTES.convert(text, None, None)
