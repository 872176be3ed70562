"""A sink's subtask knows up to which event time its output is complete."""

import pytest

from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.records.sink_outputs import ENDED, IDLE, WATERMARK_US
from laminar_core.worker.output_time import OutputTime


def trace(script: str) -> JsonObject:
    """``5`` is a watermark, ``w`` a row, ``z`` sleeps, ``e`` ends."""
    time = OutputTime()
    for word in script.split():
        match word:
            case "w":
                time.become_active()
            case "z":
                time.become_idle()
            case "e":
                time.advance(WATERMARK_END_US)
            case _:
                time.advance(int(word))
    return time.properties()


@pytest.mark.parametrize(
    ("script", "recorded"),
    [
        ("w", {}),
        ("5 7", {WATERMARK_US: 7}),
        ("7 5", {WATERMARK_US: 7}),
        ("5 z", {WATERMARK_US: 5, IDLE: True}),
        ("z w", {}),
        ("5 z 7", {WATERMARK_US: 7}),
        ("5 e", {WATERMARK_US: 5, ENDED: True}),
        ("e", {ENDED: True}),
    ],
)
def test_trace(script: str, recorded: JsonObject) -> None:
    assert trace(script) == recorded


@pytest.mark.parametrize(
    ("parts", "recorded"),
    [
        ([{WATERMARK_US: 5}], {WATERMARK_US: 5}),
        ([{WATERMARK_US: 5}, {WATERMARK_US: 3}], {WATERMARK_US: 3}),
        ([{WATERMARK_US: 5}, {}], {}),
        ([{WATERMARK_US: 5, ENDED: True, IDLE: True}], {WATERMARK_US: 5}),
    ],
)
def test_a_restart_continues_from_the_slowest_part(parts, recorded: JsonObject) -> None:
    time = OutputTime()
    time.restore(parts)
    assert time.properties() == recorded
