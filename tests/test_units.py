"""Durations and sizes: every way to write one, and one line for what is none."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from pydantic import TypeAdapter, ValidationError

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.units import (
    Duration,
    DurationText,
    Size,
    duration_ms,
    duration_text,
    duration_us,
    instant_ms,
    instant_us,
    share,
    signed_duration_us,
    size_bytes,
)

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("5 minutes", 5 * MINUTE),
        ("1 hour 30 minutes", 90 * MINUTE),
        ("1 HOUR  30 Minutes ", 90 * MINUTE),
        ("1 second 1 microsecond", 1_000_001),
        ("2 weeks 1 day", 15 * 24 * 60 * MINUTE),
        ("10seconds", 10_000_000),
        ("5s", 5_000_000),
        ("500ms", 500_000),
        ("7us", 7),
        ("2h", 120 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1.5 h", 90 * MINUTE),
        ("1w 1d", 8 * 24 * 60 * MINUTE),
        ("PT5S", 5_000_000),
        ("PT0.5S", 500_000),
        ("P1DT2H3M", (26 * 60 + 3) * MINUTE),
        ("P1W", 7 * 24 * 60 * MINUTE),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
    ],
)
def test_a_duration_is_read_however_people_write_it(text: str, microseconds: int) -> None:
    assert duration_us(text) == microseconds


def test_a_duration_may_have_a_sign_where_it_is_said_to() -> None:
    found = [signed_duration_us(text) for text in ("0s", "-0 seconds", " -1h 30m", "5s", "-PT5S")]
    assert found == [0, 0, -90 * MINUTE, 5_000_000, -5_000_000]
    assert signed_duration_us(timedelta(seconds=-1)) == -1_000_000
    for text in ("-", "--5s", "-5", "5", "-1000000 weeks 1000000000000 days", "+5s"):
        with pytest.raises(ConfigurationError) as caught:
            signed_duration_us(text)
        assert caught.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "minutes", "5 minuts", "5 minutes and", "five minutes", "1 month", "-1 day"),
        *("1,5s", "5s5", "5 5s", "5 parsecs", "P", "PT", "P1M", "P1Y", "P1H", "PT1D", "9" * 31),
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write for example 5s, 500ms") as caught:
        duration_us(text)
    assert caught.value.code is ErrorCode.INVALID_OPTION
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["5", " 10 ", "1.5", "-1", "0"])
def test_a_duration_without_a_unit_is_refused_because_it_is_ambiguous(text: str) -> None:
    with pytest.raises(ConfigurationError, match="has no unit"):
        duration_us(text)


@pytest.mark.parametrize("value", [5, 1.5, None, ["5s"], b"5s"])
def test_what_is_no_text_is_no_duration(value) -> None:
    for read in (duration_us, signed_duration_us, duration_ms):
        with pytest.raises(ConfigurationError, match="is not a duration: write a text, for") as got:
            read(value)
        assert got.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize(
    "duration", ["0 seconds", timedelta(0), timedelta(seconds=-1), "999999999999 weeks"]
)
def test_a_duration_is_more_than_nothing_and_fits_the_clock(duration: str | timedelta) -> None:
    with pytest.raises(ConfigurationError, match="positive and at most 146,000 years") as caught:
        duration_us(duration)
    assert caught.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("1 second", 1000),
        ("2 minutes 500 milliseconds", 120_500),
        (timedelta(milliseconds=20), 20),
        ("1500 microseconds", 1),
        ("1 microsecond", 1),
    ],
)
def test_milliseconds_are_whole_and_at_least_one(duration, milliseconds: int) -> None:
    assert duration_ms(duration) == milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        (8, 8),
        ("7B", 7),
        ("1KiB", 1 << 10),
        (" 64 MiB ", 64 << 20),
        ("2GiB", 2 << 30),
        ("1.5GiB", 3 << 29),
        ("1TiB", 1 << 40),
        ("64MB", 64_000_000),
        ("10kB", 10_000),
        ("10KB", 10_000),
    ],
)
def test_a_size_becomes_bytes(text: str | int, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-1", -2, "1,5GiB", "64M", "64mib", "64MB foo", "much", "1\nMiB x", "9" * 31]
)
def test_what_is_no_size_is_refused_with_an_example(text: str | int) -> None:
    with pytest.raises(ConfigurationError, match="is not a size: write for example 64MiB, 64MB or"):
        size_bytes(text)


def test_values_of_configuration_are_kept_as_they_were_written() -> None:
    assert TypeAdapter(DurationText).validate_python("1 hour 30 minutes") == "1 hour 30 minutes"
    assert TypeAdapter(Duration).validate_python("5s") == "5s"
    assert TypeAdapter(Duration).validate_python(timedelta(seconds=2)) == "2000000us"
    assert TypeAdapter(Size).validate_python("64 MiB") == "64 MiB"
    assert TypeAdapter(Size).validate_python(5) == 5


@pytest.mark.parametrize("kind", [Duration, DurationText, Size], ids=["any", "text", "size"])
@pytest.mark.parametrize("value", ["soon", True, None, [5], "1e3"])
def test_other_values_are_refused_by_pydantic(kind, value) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize("number", [5, 1.5])
def test_a_number_is_no_duration(number) -> None:
    with pytest.raises(ValidationError, match="has no unit"):
        TypeAdapter(Duration).validate_python(number)


@pytest.mark.parametrize(
    ("text", "part"),
    [("1%", Fraction(1, 100)), (" 0.5 % ", Fraction(1, 200)), ("0%", 0), ("100%", 1)],
)
def test_a_share_is_exact(text: str, part: Fraction) -> None:
    assert share(text) == part


@pytest.mark.parametrize(
    "text", ["", "%", "1", "0.01", "-1%", "101%", "1,5%", "1%%", "9" * 31 + "%"]
)
def test_what_is_no_share_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write for example 1%") as caught:
        share(text)
    assert caught.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (1_000, "1 second"),
        (1_500, "1.5 seconds"),
        (890_000, "14 minutes 50 seconds"),
        (7 * 86_400_000, "7 days"),
        (3_660_000, "1 hour 1 minute"),
    ],
)
def test_a_duration_is_written_as_it_is_read(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
    assert duration_us(text) == milliseconds * 1_000


@pytest.mark.parametrize(
    "microseconds",
    [
        1_772_366_400_000_001,
        139_238_802_194_016_000,
        -34_663_905_266_478_000,
        -1,
        -62_135_596_800_000_000,
    ],
)
def test_an_instant_of_any_year_is_exact(microseconds: int) -> None:
    """Seconds as a float have no place for the last digits of a time far from 1970."""
    text = str(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds))
    assert instant_us(text) == microseconds
    assert instant_ms(text) == microseconds // 1000


def test_a_size_fits_into_the_64_bits_of_native_code() -> None:
    assert size_bytes("4194304TiB") == 2**62
    with pytest.raises(ConfigurationError, match="at most 4,194,304 TiB, got '4194305TiB'"):
        size_bytes("4194305TiB")
