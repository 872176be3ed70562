"""Durations, sizes and shares as people write them, wherever they write one.

A duration: ``5s``, ``500ms``, ``1h30m``, ``"1 hour 30 minutes"`` or ``PT1H30M`` (ISO 8601). A
number alone is refused, because it could mean seconds or milliseconds. A size: ``64MiB`` (1024s),
``64MB`` (1000s) or ``1.5GiB``. A number alone is bytes.
A share: ``1%`` or ``0.5 %``.

pydantic's own types do not fit: its ``ByteSize`` reads ``1,5GiB`` as one byte and ``64MB foo`` as
64MB, and its ``timedelta`` does not know ``5s`` and takes ``P1M`` for 30 days.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Annotated

from pydantic import AfterValidator, PlainValidator

from laminar_core.errors import ConfigurationError, ErrorCode

US_MAX = 2**62
"""Half of the 64-bit range: 146,000 years. What lies beyond is a sentinel or a wrong unit, and
arithmetic on it would wrap."""

BYTES_MAX = 2**62
"""Half of the 64-bit range, in which native code counts bytes."""

_WORDS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
}
_UNITS_US = {
    **_WORDS_US,
    **{f"{word}s": length_us for word, length_us in _WORDS_US.items()},
    **{short: _WORDS_US[word] for short, word in _SHORT.items()},
}
_ISO_DATE_US = {"W": _UNITS_US["w"], "D": _UNITS_US["d"]}
_ISO_TIME_US = {"H": _UNITS_US["h"], "M": _UNITS_US["m"], "S": _UNITS_US["s"]}

_PREFIXES = ("k", "M", "G", "T")
_UNITS_BYTES = {
    "": 1,
    "B": 1,
    "KB": 1000,
    **{f"{prefix}B": 1000 ** (n + 1) for n, prefix in enumerate(_PREFIXES)},
    **{f"{prefix.upper()}iB": 1024 ** (n + 1) for n, prefix in enumerate(_PREFIXES)},
}

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_PART = re.compile(rf"\s*{_NUMBER}\s*([A-Za-z]*)\s*")
_BARE = re.compile(rf"\s*-?{_NUMBER}\s*")
_ISO = re.compile(r"P(?=.)([0-9WD.]*)(?:T([0-9HMS.]+))?")
_SHARE = re.compile(rf"\s*{_NUMBER}\s*%\s*")
_DIGITS_MAX = 30
_START = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE_PERCENT = 100


def duration_us(duration: str | timedelta) -> int:
    """Return the microseconds of a duration.

    >>> duration_us("1h30m") == duration_us("1 hour 30 minutes") == duration_us("PT1H30M")
    True

    Raises:
        ConfigurationError: it cannot be read or is not positive (INVALID_OPTION).
    """
    if isinstance(duration, timedelta):
        length_us = duration // timedelta(microseconds=1)
    else:
        length_us = _parse_us(duration)
    if not 0 < length_us <= US_MAX:
        raise _invalid(f"a duration must be positive and at most 146,000 years, got {duration!r}")
    return length_us


def signed_duration_us(duration: str | timedelta) -> int:
    """Return the microseconds of a duration that may be zero, or negative with a minus before it.

    >>> signed_duration_us("-5 minutes"), signed_duration_us("0s")
    (-300000000, 0)

    Raises:
        ConfigurationError: it cannot be read, or is out of range (INVALID_OPTION).
    """
    if isinstance(duration, timedelta):
        length_us = duration // timedelta(microseconds=1)
    else:
        text = _text(duration).strip()
        length_us = -_parse_us(text[1:]) if text.startswith("-") else _parse_us(text)
    if abs(length_us) > US_MAX:
        raise _invalid(f"a duration must be at most 146,000 years, got {duration!r}")
    return length_us


def duration_ms(duration: str | timedelta) -> int:
    """Return the whole milliseconds of a duration, at least one.

    >>> duration_ms("1.5s")
    1500

    Raises:
        ConfigurationError: it cannot be read or is not positive (INVALID_OPTION).
    """
    return max(duration_us(duration) // 1000, 1)


def duration_text(milliseconds: int) -> str:
    """Return a duration as people write it, in a form that ``duration_ms`` reads.

    >>> duration_text(890_000)
    '14 minutes 50 seconds'
    >>> duration_text(0)
    '0 seconds'
    """
    parts: list[str] = []
    for unit, unit_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        count, milliseconds = divmod(milliseconds, unit_ms)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    if milliseconds or not parts:
        seconds = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
        parts.append(f"{seconds} second{'' if seconds == '1' else 's'}")
    return " ".join(parts)


def size_bytes(size: str | int) -> int:
    """Return the bytes of a size.

    >>> size_bytes("64MiB"), size_bytes("64MB"), size_bytes("100")
    (67108864, 64000000, 100)

    Raises:
        ConfigurationError: it cannot be read, is negative or out of range (INVALID_OPTION).
    """
    match = _PART.fullmatch(str(size))
    if match is None or len(match[1]) > _DIGITS_MAX or match[2] not in _UNITS_BYTES:
        raise _invalid(f"{size!r} is not a size: write for example 64MiB, 64MB or 1.5GiB")
    found = int(Decimal(match[1]) * _UNITS_BYTES[match[2]])
    if found > BYTES_MAX:
        raise _invalid(f"a size must be at most 4,194,304 TiB, got {size!r}")
    return found


def share(text: str) -> Fraction:
    """Return a share of a whole.

    >>> share("1%"), share("0.5 %")
    (Fraction(1, 100), Fraction(1, 200))

    Raises:
        ConfigurationError: it cannot be read, or is more than the whole (INVALID_OPTION).
    """
    match = _SHARE.fullmatch(str(text))
    if match is None or len(match[1]) > _DIGITS_MAX or Fraction(match[1]) > _WHOLE_PERCENT:
        raise _invalid(f"{text!r} is not a share: write for example 1%, 0.5% or 100%")
    return Fraction(match[1]) / _WHOLE_PERCENT


def instant_ms(text: str) -> int:
    """Return the whole milliseconds since 1970 of an ISO 8601 time with a zone.

    >>> instant_ms("1970-01-01T01:00:00+01:00")
    0

    Raises:
        ConfigurationError: as ``instant_us``.
    """
    return instant_us(text) // 1000


def instant_us(text: str) -> int:
    """Return the microseconds since 1970 of an ISO 8601 time with a zone.

    >>> instant_us("1969-12-31T23:59:59.999999Z")
    -1

    Raises:
        ConfigurationError: it is none, or says no zone (INVALID_OPTION).
    """
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        instant = None
    if instant is None or instant.tzinfo is None:
        raise _invalid(
            f"{text!r} is not a time: write it in ISO 8601 with a zone, as in 2026-03-01T12:00:00Z"
        )
    return (instant - _START) // timedelta(microseconds=1)


def is_whole(given: object) -> bool:
    """Return whether this is a whole number, also one of numpy.

    >>> is_whole(2), is_whole(2.0), is_whole(True)
    (True, False, False)
    """
    return not isinstance(given, bool) and isinstance(given, Integral)


def accepted_by(check: Callable[[str], object]) -> AfterValidator:
    """Accept a text that ``check`` accepts; pydantic reports its refusal with the field's name."""

    def validate(text: str) -> str:
        _ask(check, text)
        return text

    return AfterValidator(validate)


def _duration(value: object) -> str:
    is_delta = isinstance(value, timedelta)
    text = f"{value // timedelta(microseconds=1)}us" if is_delta else str(value)
    _ask(duration_us, text)
    return text


def _size(value: object) -> str | int:
    _ask(size_bytes, str(value))
    return value if isinstance(value, int) else str(value)


DurationText = Annotated[str, accepted_by(duration_us)]
"""A duration that is kept as it was written."""

Instant = Annotated[str, accepted_by(instant_ms)]
"""A time that is kept as it was written."""

Duration = Annotated[str | timedelta, PlainValidator(_duration)]
"""A duration that is kept as it was written; a ``timedelta`` becomes a text."""

Size = Annotated[str | int, PlainValidator(_size)]
"""A size that is kept as it was written; a number is bytes."""


def _ask(check: Callable[[str], object], value: str) -> None:
    """Turn a refusal into the error that pydantic expects."""
    try:
        check(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _parse_us(duration: object) -> int:
    text = _text(duration)
    iso = _ISO.fullmatch(text.strip())
    if iso is None:
        return int(sum(_parts(text, text.lower(), _UNITS_US)))
    date, time = _parts(text, iso[1], _ISO_DATE_US), _parts(text, iso[2] or "", _ISO_TIME_US)
    return int(sum(date) + sum(time))


def _text(duration: object) -> str:
    if isinstance(duration, str):
        return duration
    raise _invalid(
        f'{duration!r} is not a duration: write a text, for example "5s", "500ms" or "2 hours"'
    )


def _parts(whole: str, text: str, units_us: Mapping[str, int]) -> Iterator[Decimal]:
    if _BARE.fullmatch(text):
        raise _invalid(f"{whole!r} has no unit: write for example 5s, 500ms or 2 hours")
    position = 0
    while position < len(text) or (not text and units_us is _UNITS_US):
        match = _PART.match(text, position)
        if match is None or len(match[1]) > _DIGITS_MAX or match[2] not in units_us:
            raise _invalid(
                f"{whole!r} is not a duration: write for example 5s, 500ms, PT5S or "
                '"1 hour 30 minutes"'
            )
        yield Decimal(match[1]) * units_us[match[2]]
        position = match.end()


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
