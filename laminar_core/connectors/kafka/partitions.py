"""Partitions as splits: where reading begins, what is found later, and what was lost meanwhile.

Pure: facts about the topics in, a table of splits or gaps out. A position is the topic's identity
and the offset of the next message; offsets have gaps, so they are compared and never counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import pyarrow as pa

from laminar_core.connectors.base import Found
from laminar_core.connectors.kafka.facts import Bounds, Place, TopicFacts
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.state.splits import split_columns, split_table

SPLITS_SCHEMA = split_columns(
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("partition", pa.int32()),
    ("row", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("end_offset", pa.int64()),
)
"""A split is a partition, its offset the next message.

``topic_id``: the identity of the topic, another one if it was deleted and created again. ``row``:
rows of the message at the offset that were returned already; messages of Arrow have many.
``leader_epoch``: of the last message, null if unknown; with it the client notices that a broker
lost messages. ``end_offset``: a bounded source stops before it; null if the source has no end.
"""

_LEFT_OUT = "left_out"
"""Topics whose splits a person has given up, because they are not those that were read."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Start = Literal["earliest", "latest"] | datetime | Mapping[str, int]


class Loss(StrEnum):
    """Why messages that are to be read are not there. Append-only."""

    RETENTION = "retention"
    """The topic's retention deleted them."""
    RECREATED = "recreated"
    """The topic was deleted and created again: offsets mean other messages."""
    GONE = "gone"
    """Topic or partition does not exist."""
    TRUNCATED = "truncated"
    """The partition ends before them: a broker lost what it had acknowledged."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Messages of one split that a job would have to read and that are gone."""

    split: str
    offset: int
    """Where the split would go on."""
    available: tuple[int, int] | None
    """First offset and end of what there is now; None: nothing."""
    why: Loss

    @property
    def messages_lost_max(self) -> int | None:
        """How many messages are lost at most; None: unknown. Offsets may have gaps."""
        if self.why is Loss.RETENTION and self.available is not None:
            return self.available[0] - self.offset
        return None

    def __str__(self) -> str:
        found = "nothing is there"
        if self.available is not None:
            found = f"offsets {self.available[0]} to {self.available[1]} are there"
        return f"{self.split} goes on at offset {self.offset}, and {found} ({self.why})"


def split_name(topic: str, partition: int) -> str:
    """Return the name of a split, for people.

    >>> split_name("payments", 3)
    'payments/3'
    """
    return f"{topic}/{partition}"


def new_places(topics: Mapping[str, TopicFacts], state: JsonObject) -> list[Place]:
    """Return the partitions that were not found before, in the order of their names.

    Topics that are left out have none.

    Raises:
        IncompatibleStateError: a topic is gone, or was deleted and created again (SOURCE_CHANGED).
    """
    known = _known(state)
    for name, (topic_id, _) in known.items():
        facts = topics.get(name)
        if facts is None or facts.topic_id != topic_id:
            what = "is gone" if facts is None else "was deleted and created again"
            raise IncompatibleStateError(
                ErrorCode.SOURCE_CHANGED,
                f"topic {name} {what} while the job read it: start the job afresh, or under "
                "another name",
            )
    return [
        (name, partition)
        for name, facts in sorted(topics.items())
        if name not in _left_out(state)
        for partition in facts.partitions
        if partition not in known.get(name, ("", frozenset()))[1]
    ]


def found(
    topics: Mapping[str, TopicFacts],
    state: JsonObject,
    offsets: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> Found:
    """Return a split for each place of ``offsets``, and the state that knows them.

    ``ends``: where a bounded source stops, which ignores later partitions; empty if it has no end.
    """
    known = _known(state)
    first_id = _next_id(state)
    rows: list[dict[str, Any]] = []
    for split_id, ((topic, partition), offset) in enumerate(offsets.items(), first_id):
        end = ends.get((topic, partition))
        topic_id = topics[topic].topic_id
        rows.append(
            {
                "split_id": split_id,
                "split": split_name(topic, partition),
                "offset": str(offset),
                "done": end is not None and offset >= end,
                "topic": topic,
                "topic_id": topic_id,
                "partition": partition,
                "row": 0,
                "end_offset": end,
            }
        )
        seen = known.get(topic, (topic_id, frozenset[int]()))[1]
        known[topic] = (topic_id, seen | {partition})
    listed: dict[str, JsonValue] = {}
    for name, (topic_id, partitions) in sorted(known.items()):
        listed[name] = {"topic_id": topic_id, "partitions": [*sorted(partitions)]}
    after: JsonObject = {**state, "next_split_id": first_id + len(rows), "topics": listed}
    return Found(split_table(rows, SPLITS_SCHEMA), after, complete=bool(ends))


def without_topics(state: JsonObject, names: Iterable[str]) -> JsonObject:
    """Return a state for which it does not matter what has become of these topics."""
    return {**state, _LEFT_OUT: [*sorted({*_left_out(state), *names})]}


def offsets_asked_for(start: Mapping[str, int], bounds: Mapping[Place, Bounds]) -> dict[Place, int]:
    """Return the offsets that a user gave by the names of splits.

    Raises:
        ConfigurationError: one is missing, outside of what can be read, or of no partition
            (INVALID_OPTION).
    """
    given = dict(start)
    offsets: dict[Place, int] = {}
    for (topic, partition), range_ in bounds.items():
        name = split_name(topic, partition)
        offset = given.pop(name, None)
        if offset is None:
            raise _invalid(f"start has no offset for {name}: name every partition")
        if not range_.low <= offset <= range_.end:
            remedy = (
                "the messages before are gone, so give one of these offsets, or begin at earliest"
                if offset < range_.low
                else "give one of these offsets, or begin at latest"
            )
            raise _invalid(
                f"start has offset {offset} for {name}, which has offsets {range_.low} to "
                f"{range_.end}: {remedy}"
            )
        offsets[topic, partition] = offset
    if given:
        raise _invalid(
            f"start names {', '.join(sorted(given))}, which these topics do not have: correct or "
            "remove it"
        )
    return offsets


def first_ms(time: datetime) -> int:
    """Return the first timestamp of a message from a time on, in milliseconds since 1970.

    Brokers understand something else by times before 1970, such as the end of a partition by -1.

    >>> first_ms(datetime(1970, 1, 1, 0, 0, 0, 1, UTC))
    1
    """
    return max(-((_EPOCH - time) // timedelta(milliseconds=1)), 0)


def lost_ranges(
    splits: Sequence[Mapping[str, Any]],
    topics: Mapping[str, TopicFacts],
    bounds: Mapping[Place, Bounds],
) -> list[LostRange]:
    """Return the splits whose next offset no longer exists, in the order of the splits.

    ``bounds`` has every partition of ``topics`` that a split is of. Splits that are done need
    nothing any more.
    """
    found = (_lost(split, topics, bounds) for split in splits if not split["done"])
    return [lost for lost in found if lost is not None]


def _lost(
    split: Mapping[str, Any], topics: Mapping[str, TopicFacts], bounds: Mapping[Place, Bounds]
) -> LostRange | None:
    name, offset = str(split["split"]), int(split["offset"])
    facts = topics.get(split["topic"])
    if facts is None or split["partition"] not in facts.partitions:
        return LostRange(name, offset, None, Loss.GONE)
    range_ = bounds[split["topic"], split["partition"]]
    available = (range_.low, range_.end)
    if facts.topic_id != split["topic_id"]:
        return LostRange(name, offset, available, Loss.RECREATED)
    if offset < range_.low:
        return LostRange(name, offset, available, Loss.RETENTION)
    if offset > range_.end:
        return LostRange(name, offset, available, Loss.TRUNCATED)
    return None


def _known(state: JsonObject) -> dict[str, tuple[str, frozenset[int]]]:
    topics: Any = state.get("topics", {})
    return {
        name: (topic["topic_id"], frozenset(topic["partitions"]))
        for name, topic in topics.items()
        if name not in _left_out(state)
    }


def _left_out(state: JsonObject) -> list[str]:
    names: Any = state.get(_LEFT_OUT, [])
    return names


def _next_id(state: JsonObject) -> int:
    number = state.get("next_split_id", 0)
    assert isinstance(number, int)
    return number


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
