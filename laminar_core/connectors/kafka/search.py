"""Finds partitions, and checks that the rest of known ones is still there. Runs in the driver."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from laminar_core.connectors.base import Found
from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.facts import Place, TopicFacts
from laminar_core.connectors.kafka.partitions import (
    LostRange,
    Start,
    first_ms,
    found,
    lost_ranges,
    new_places,
    offsets_asked_for,
)
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject

Until = Literal["latest"]


SEARCH_INTERVAL_MS = 10_000
"""Interval between two searches for new partitions.

Each search also checks that the topics were not replaced.
"""


class PartitionSearch:
    """Looks for partitions of these topics."""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Sequence[str],
        start: Start,
        until: Until | None,
        interval_ms: int = SEARCH_INTERVAL_MS,
    ) -> None:
        self.interval_ms = interval_ms
        self._connection = connection
        self._topics = topics
        self._start = start
        self._until = until

    def step(self, state: JsonObject) -> Found:
        """Return the partitions that a search with this ``state`` has not found yet.

        On a fresh start, ``{}``, they begin where the source says. Those that are added later begin
        at their first message, because it was written after the job had started.

        Raises:
            ConfigurationError: a topic does not exist, or ``start`` does not fit.
            IncompatibleStateError: a topic was deleted, or created again.
            StorageUnavailable: no broker answered.
        """
        with Cluster(self._connection) as cluster:
            facts = self._facts(cluster, state)
            places = new_places(facts, state)
            offsets = self._first_offsets(cluster, places, state)
            ends: dict[Place, int] = {}
            if self._until is not None and places:
                bounds = cluster.bounds(places)
                ends = {place: bounds[place].stable_end for place in places}
        return found(facts, state, offsets, ends)

    def _facts(self, cluster: Cluster, state: JsonObject) -> Mapping[str, TopicFacts]:
        facts = cluster.topics(self._topics, ("read",))
        missing = [topic for topic in self._topics if topic not in facts]
        if missing and not state:
            raise ConfigurationError(
                ErrorCode.NO_SUCH_TOPIC,
                f"Kafka at {self._connection.bootstrap} has no topic {missing[0]}: create it, or "
                "correct the name",
            )
        return facts

    def _first_offsets(
        self, cluster: Cluster, places: Sequence[Place], state: JsonObject
    ) -> dict[Place, int]:
        if not places:
            return {}
        bounds = cluster.bounds(places)
        start = "earliest" if state else self._start
        if start == "earliest":
            return {place: bounds[place].low for place in places}
        if start == "latest":
            return {place: bounds[place].stable_end for place in places}
        if isinstance(start, datetime):
            at = cluster.offsets_at(places, first_ms(start))
            return {p: bounds[p].stable_end if (o := at[p]) is None else o for p in places}
        assert not isinstance(start, str)
        return offsets_asked_for(start, bounds)


def find_lost_ranges(connection: KafkaConnection, splits: pa.Table) -> list[LostRange]:
    """Return the splits whose next messages are gone.

    Raises:
        StorageUnavailable: no broker answered.
    """
    rows: list[dict[str, Any]] = splits.to_pylist()
    unread = [row for row in rows if not row["done"]]
    if not unread:
        return []
    with Cluster(connection) as cluster:
        facts = cluster.topics(sorted({row["topic"] for row in unread}), ("read",))
        places = sorted(set(_places(unread, facts)))
        bounds = cluster.bounds(places) if places else {}
    return lost_ranges(unread, facts, bounds)


def _places(rows: Iterable[Mapping[str, Any]], facts: Mapping[str, TopicFacts]) -> Iterable[Place]:
    for row in rows:
        topic = facts.get(row["topic"])
        if topic is not None and row["partition"] in topic.partitions:
            yield row["topic"], row["partition"]
