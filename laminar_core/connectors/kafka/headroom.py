"""How far positions are from messages that retention has deleted. Runs in the driver.

A broker does not say how old the message at an offset is. It does say which offset is the first
one at or after a time. So the time that a position has left is found by halving: how much later may
it be until the messages that retention deletes include those behind the position? Brokers delete
whole segments, never earlier than this.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from laminar_core.connectors.base import Headroom
from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.facts import Bounds, Place

_STEPS = 8
"""A 256th of the retention time: forty minutes of a week."""


def time_left_ms(is_safe: Callable[[int], bool], keeps_ms: int, now_ms: int) -> int:
    """Return a lower bound of the time for which the positions stay readable, in milliseconds.

    It is at most ``keeps_ms / 256`` too small. ``is_safe(time_ms)``: whether all messages before
    this time can be deleted. Pure.

    >>> time_left_ms(lambda time_ms: time_ms <= 9_500, keeps_ms=2_560, now_ms=10_000)
    2060
    """
    safe_ms, unsafe_ms = 0, keeps_ms
    if is_safe(now_ms):
        return keeps_ms  # Everything up to now was read.
    if not is_safe(now_ms - keeps_ms):
        return 0
    for _ in range(_STEPS):
        middle_ms = (safe_ms + unsafe_ms) // 2
        if is_safe(now_ms - keeps_ms + middle_ms):
            safe_ms = middle_ms
        else:
            unsafe_ms = middle_ms
    return safe_ms


def rows_of_headroom(offsets: Mapping[Place, int], bounds: Mapping[Place, Bounds]) -> int | None:
    """Return the least distance of an offset from the first one that is there; None: no offset."""
    return min((offset - bounds[place].low for place, offset in offsets.items()), default=None)


def find_headroom(connection: KafkaConnection, splits: pa.Table, now_ms: int) -> Headroom:
    """Return the headroom of these positions; partitions that are gone are left out.

    A start refuses those, and says why (``KafkaSource.gaps``).

    Raises:
        StorageUnavailable: no broker answered.
    """
    unread: Sequence[Mapping[str, Any]] = [row for row in splits.to_pylist() if not row["done"]]
    topic_ids = {row["topic"]: row["topic_id"] for row in unread}
    if not unread:
        return Headroom()
    with Cluster(connection) as cluster:
        facts = cluster.topics(sorted(topic_ids))
        same = {topic for topic, found in facts.items() if found.topic_id == topic_ids[topic]}
        offsets: dict[Place, int] = {
            (row["topic"], row["partition"]): int(row["offset"])
            for row in unread
            if row["topic"] in same and row["partition"] in facts[row["topic"]].partitions
        }
        bounds = cluster.bounds(sorted(offsets)) if offsets else {}
        times_ms: list[int] = []
        for topic, keeps_ms in cluster.retention_ms(sorted({name for name, _ in offsets})).items():
            of_topic = {place: at for place, at in offsets.items() if place[0] == topic}
            is_safe = _safety(cluster, of_topic, bounds)
            times_ms.append(time_left_ms(is_safe, keeps_ms, now_ms))
    seconds = min(times_ms) / 1000 if times_ms else None
    return Headroom(rows_of_headroom(offsets, bounds), seconds)


def _safety(
    cluster: Cluster, offsets: Mapping[Place, int], bounds: Mapping[Place, Bounds]
) -> Callable[[int], bool]:
    def is_safe(time_ms: int) -> bool:
        first = cluster.offsets_at(offsets, max(time_ms, 0))
        left = {place: bounds[place].end if at is None else at for place, at in first.items()}
        return all(left[place] <= offset for place, offset in offsets.items())

    return is_safe
