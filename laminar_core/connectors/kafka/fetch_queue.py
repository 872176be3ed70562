"""Bytes that the Kafka client has fetched ahead, from its own statistics."""

import json
from collections.abc import Mapping
from typing import Any

from laminar_core.connectors.kafka.facts import Place
from laminar_core.host.clock import Clock

STATISTICS_INTERVAL_MS = 2_000
"""Time between two statistics: about 1 kB of JSON for each partition, read in 0.03 ms."""
STATISTICS_AGE_MS_MAX = 10_000
"""Older ones are not known any more: the client hands them over only while it is asked."""


class FetchQueue:
    """The newest statistics of one client; its methods are called by the reader's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes: Mapping[Place, int] = {}
        self._taken_ms = clock.monotonic_ms()

    def take(self, statistics: str) -> None:
        """Keep what the client says; a callback of the client."""
        self._bytes, self._taken_ms = queued_bytes(statistics), self._clock.monotonic_ms()

    def known(self) -> Mapping[Place, int]:
        """Return the bytes of each partition; empty if the statistics are too old."""
        age_ms = self._clock.monotonic_ms() - self._taken_ms
        return self._bytes if age_ms <= STATISTICS_AGE_MS_MAX else {}


def queued_bytes(statistics: str) -> dict[Place, int]:
    """Return the bytes that wait in the client, by partition. Pure.

    >>> queued_bytes('{"topics": {"t": {"partitions": {"0": {"fetchq_size": 7}}}}}')
    {('t', 0): 7}
    """
    found: dict[Place, int] = {}
    topics: Mapping[str, Any] = json.loads(statistics).get("topics", {})
    for topic, facts in topics.items():
        for number, partition in facts.get("partitions", {}).items():
            if int(number) >= 0 and "fetchq_size" in partition:  # -1 is the client's own.
                found[topic, int(number)] = int(partition["fetchq_size"])
    return found
