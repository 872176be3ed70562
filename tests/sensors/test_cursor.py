"""A cursor that cannot be read is as good as none."""

import pytest

from laminar_core.sensors.cursor import AlertCursor


@pytest.mark.parametrize("text", [None, "", "nonsense", '{"told": 7}', '{"of_another": 1}'])
def test_what_cannot_be_read_is_empty(text: str | None) -> None:
    assert AlertCursor.read(text) == AlertCursor()


def test_what_a_tick_leaves_the_next_one_reads() -> None:
    left = AlertCursor(told=("stuck:7",))
    assert AlertCursor.read(left.model_dump_json()) == left
