"""A cursor that cannot be read is as good as none."""

import pytest

from laminar_core.sensors.alignment.sensor import AlignmentCursor
from laminar_core.sensors.cursor import AlertCursor, Cursor
from laminar_core.sensors.observer.new_records import ObserverCursor
from laminar_core.sensors.recovery.sensor import RecoveryCursor
from laminar_core.sensors.source_retention.sensor import SourceCursor


@pytest.mark.parametrize("text", [None, "", "nonsense", '{"told": 7}', '{"of_another": 1}'])
def test_what_cannot_be_read_is_empty(text: str | None) -> None:
    assert AlertCursor.read(text) == AlertCursor()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (RecoveryCursor, '{"watched": {"generation": -3}}'),
        (RecoveryCursor, '{"watched": {"generation": 9000000001}}'),
        (RecoveryCursor, '{"watched": {"followed": {"checkpoint_id": -1}}}'),
        (RecoveryCursor, '{"watched": {"base_id": -1}}'),
        (RecoveryCursor, '{"unanswered_since_ms": -1}'),
        (AlignmentCursor, '{"seen": {"generation": 9000000001}}'),
        (AlignmentCursor, '{"seen": {"followed": {"checkpoint_id": 9000000001}}}'),
        (ObserverCursor, '{"attempt": 1000000000000000000}'),
        (ObserverCursor, '{"health": {"generation": -1}}'),
        (ObserverCursor, '{"marks": [-1]}'),
        (SourceCursor, '{"lags": {"generation": -1}}'),
    ],
)
def test_a_number_that_no_object_can_have_cannot_be_read(kind: type[Cursor], text: str) -> None:
    assert kind.read(text) == kind()


def test_what_a_tick_leaves_the_next_one_reads() -> None:
    left = AlertCursor(told=("stuck:7",))
    assert AlertCursor.read(left.model_dump_json()) == left
