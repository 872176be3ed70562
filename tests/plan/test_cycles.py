"""Vertices on a common cycle belong together, however the cycles are nested."""

from itertools import pairwise

import pytest

from laminar_core.plan.cycles import cycles


def edges(*paths: str) -> list[tuple[str, str]]:
    return [pair for path in paths for pair in pairwise(path)]


@pytest.mark.parametrize(
    ("paths", "together"),
    [
        (["shbo"], {}),
        (["shbo", "bh"], {"h": "h", "b": "h"}),
        (["shh", "ho"], {"h": "h"}),
        (["sabcdo", "da", "cb"], dict.fromkeys("abcd", "a")),
        (["sabco", "ba", "cb"], dict.fromkeys("abc", "a")),
        (["sabo", "ba", "bcdo", "dc"], {"a": "a", "b": "a", "c": "c", "d": "c"}),
        (["sao", "ab", "ba", "ac", "ca"], dict.fromkeys("abc", "a")),
        (["sao", "sbo", "aa"], {"a": "a"}),
    ],
    ids=[
        "none",
        "one",
        "a vertex alone",
        "nested",
        "sharing a vertex",
        "in a row",
        "two ways back",
        "beside a loop",
    ],
)
def test_trace(paths: list[str], together: dict[str, str]) -> None:
    found = edges(*paths)
    vertices = sorted({v for pair in found for v in pair}, key="shabcdo".index)
    assert cycles(vertices, found) == together
