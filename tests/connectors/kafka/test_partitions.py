"""Where partitions begin, which are new, and which messages are lost: facts in, decisions out."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from laminar_core.connectors.kafka.facts import Bounds, TopicFacts
from laminar_core.connectors.kafka.partitions import (
    Loss,
    first_ms,
    found,
    lost_ranges,
    new_places,
    offsets_asked_for,
    without_topics,
)
from laminar_core.errors import ConfigurationError, IncompatibleStateError

TOPICS = {"a": TopicFacts("id-a", (0, 1)), "b": TopicFacts("id-b", (0,))}


def test_everything_is_new_once() -> None:
    places = new_places(TOPICS, {})
    assert places == [("a", 0), ("a", 1), ("b", 0)]
    first = found(TOPICS, {}, dict.fromkeys(places, 5), {})
    assert first.splits.column("split").to_pylist() == ["a/0", "a/1", "b/0"]
    assert new_places(TOPICS, first.state) == []
    more = TOPICS | {"b": TopicFacts("id-b", (0, 1, 2))}
    later = new_places(more, first.state)
    assert later == [("b", 1), ("b", 2)]
    second = found(more, first.state, dict.fromkeys(later, 0), {})
    assert second.splits.column("split_id").to_pylist() == [3, 4], "numbers are never used again"
    assert new_places(more, second.state) == []
    again = found(more, first.state, dict.fromkeys(later, 0), {})
    assert (again.splits, again.state) == (second.splits, second.state), "one state, one answer"


@pytest.mark.parametrize("now", [{"b": TOPICS["b"]}, TOPICS | {"a": TopicFacts("other", (0, 1))}])
def test_another_topic_of_the_same_name_is_not_read_on(now: dict[str, TopicFacts]) -> None:
    state = found(TOPICS, {}, dict.fromkeys(new_places(TOPICS, {}), 0), {}).state
    with pytest.raises(IncompatibleStateError, match=r"topic a (is gone|was deleted)"):
        new_places(now, state)


@pytest.mark.parametrize("now", [{"b": TOPICS["b"]}, TOPICS | {"a": TopicFacts("other", (0, 1))}])
def test_a_topic_that_is_given_up_stops_nothing(now: dict[str, TopicFacts]) -> None:
    """The other topics are read on, and their new partitions found, also in later searches."""
    state = found(TOPICS, {}, dict.fromkeys(new_places(TOPICS, {}), 0), {}).state
    state = without_topics(state, ["a"])
    assert new_places(now, state) == []
    more = now | {"b": TopicFacts("id-b", (0, 1))}
    later = found(more, state, dict.fromkeys(new_places(more, state), 0), {})
    assert later.splits.select(["split", "split_id"]).to_pylist() == [
        {"split": "b/1", "split_id": 3}
    ]
    assert new_places(more, later.state) == []


def test_a_bounded_source_has_nothing_to_read_where_nothing_is() -> None:
    ends = {("a", 0): 7, ("a", 1): 5, ("b", 0): 5}
    splits = found(TOPICS, {}, dict.fromkeys(ends, 5), ends).splits
    assert splits.column("done").to_pylist() == [False, True, True]
    assert splits.column("end_offset").to_pylist() == [7, 5, 5]


@pytest.mark.parametrize(
    ("time", "time_ms"),
    [
        (datetime(2026, 7, 1, tzinfo=UTC), 1_782_864_000_000),
        (datetime(2026, 7, 1, 0, 0, 0, 1, UTC), 1_782_864_000_001),
        (datetime(2026, 7, 1, 0, 0, 0, 999_000, UTC), 1_782_864_000_999),
        (datetime(2026, 7, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_782_864_000_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), 0),  # -1 is the end of a partition.
        (datetime.min.replace(tzinfo=UTC), 0),
    ],
)
def test_a_start_at_a_time_is_the_first_millisecond_from_then_on(time, time_ms: int) -> None:
    assert first_ms(time) == time_ms


BOUNDS = {("a", 0): Bounds(10, 20, 25)}


@pytest.mark.parametrize(
    ("start", "why"),
    [
        ({}, "no offset for a/0"),
        ({"a/0": 9}, "has offsets 10 to 25"),
        ({"a/0": 26}, "has offsets 10 to 25"),
        ({"a/0": 10, "a/1": 0}, "a/1, which these topics do not have: correct or remove it"),
    ],
)
def test_offsets_that_cannot_be_are_refused(start: dict[str, int], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        offsets_asked_for(start, BOUNDS)


@pytest.mark.parametrize("offset", [10, 25])
def test_offsets_within_the_range_are_taken(offset: int) -> None:
    assert offsets_asked_for({"a/0": offset}, BOUNDS) == {("a", 0): offset}


def split(offset: int, *, done: bool = False, topic_id: str = "id-a", partition: int = 0):
    return {
        "split": f"a/{partition}", "offset": str(offset), "done": done, "topic": "a",
        "topic_id": topic_id, "partition": partition,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "why", "lost_max"),
    [
        (split(10), None, None),
        (split(25), None, None),
        (split(9), Loss.RETENTION, 1),
        (split(26), Loss.TRUNCATED, None),
        (split(15, topic_id="old"), Loss.RECREATED, None),
        (split(0, partition=7), Loss.GONE, None),
        (split(0, done=True), None, None),
        (split(15, topic_id="old", done=True), None, None),
    ],
)
def test_what_is_lost_is_named(row: dict, why: Loss | None, lost_max: int | None) -> None:
    lost = lost_ranges([row], TOPICS, BOUNDS)
    assert [one.why for one in lost] == ([] if why is None else [why])
    assert [one.messages_lost_max for one in lost] == ([] if why is None else [lost_max])


def test_a_topic_that_is_gone_is_named() -> None:
    (lost,) = lost_ranges([split(3)], {}, {})
    assert str(lost) == "a/0 goes on at offset 3, and nothing is there (gone)"
