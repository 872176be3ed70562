"""When a source that deletes rows is worth a warning, and what the warning contains."""

import pytest

from laminar_core.sensors.judgements import Headroom
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.source_retention.headroom import headroom_incidents

POLICY = AlertPolicy(source_margin="6 hours")
HOUR_S = 3_600.0


@pytest.mark.parametrize(
    ("rows", "seconds_left", "cause"),
    [
        (10, 6.1 * HOUR_S, None),
        (10, 5.9 * HOUR_S, "source-headroom:in:expiring"),
        (0, -60.0, "source-headroom:in:expiring"),
        (-7, 0.0, "source-headroom:in:lost"),
        (-7, None, "source-headroom:in:lost"),
        (0, None, None),
        (None, None, None),
    ],
)
def test_a_warning_comes_before_the_rows_are_gone(rows, seconds_left, cause) -> None:
    found = headroom_incidents([Headroom("in", 3, rows, seconds_left)], POLICY)
    assert [each.cause for each in found] == ([] if cause is None else [cause])


def test_the_warning_has_the_facts_and_is_the_same_for_the_next_checkpoint() -> None:
    (first,) = headroom_incidents([Headroom("in", 3, 10, HOUR_S)], POLICY)
    (second,) = headroom_incidents([Headroom("in", 4, 20, HOUR_S)], POLICY)
    assert first.facts == {"checkpoint_id": 3, "headroom_rows": 10, "seconds_left": 3_600}
    assert first.cause == second.cause
    assert "checkpoint 3, the oldest, can be restored for at least 1.0 hours" in first.text


def test_each_source_has_a_warning_of_its_own() -> None:
    near = [Headroom(name, 3, 10, 60.0) for name in ("a", "b")]
    causes = {each.cause for each in headroom_incidents(near, POLICY)}
    assert causes == {"source-headroom:a:expiring", "source-headroom:b:expiring"}
