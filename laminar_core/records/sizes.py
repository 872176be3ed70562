"""Sizes in human notation, such as ``64MiB``."""

import re

from laminar_core.errors import ConfigurationError, ErrorCode

_SIZE = re.compile(r"([0-9]+) ?(KiB|MiB|GiB|)")
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def size_bytes(text: str) -> int:
    """Return the bytes of a size; a number alone is bytes already.

    >>> size_bytes("64MiB")
    67108864

    Raises:
        ConfigurationError: it is none.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"{text!r} is no size: write for example 64MiB or 1GiB"
        )
    return int(match[1]) * _UNITS[match[2]]
