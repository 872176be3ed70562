"""A size is a number of bytes, or of one of three units; anything else is refused."""

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.records.sizes import size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("7", 7), ("1KiB", 1 << 10), (" 64 MiB ", 64 << 20), ("2GiB", 2 << 30)],
)
def test_a_size_becomes_bytes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "1.5GiB", "64MB", "64mib", "much", "1\nMiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no size: write for example 64MiB or 1GiB"):
        size_bytes(text)
