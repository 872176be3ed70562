"""Bytes in the client's queue are known from its statistics, as long as these are new."""

import json

from laminar_core.connectors.kafka.fetch_queue import (
    STATISTICS_AGE_MS_MAX,
    FetchQueue,
    queued_bytes,
)
from laminar_core.host.clock import ManualClock

PARTITIONS = {"0": {"fetchq_size": 7}, "12": {"fetchq_size": 0}, "-1": {"fetchq_size": 5}, "3": {}}
STATISTICS = json.dumps({"name": "c", "topics": {"t": {"partitions": PARTITIONS}}})


def test_each_partition_has_its_bytes_and_what_is_no_partition_has_none() -> None:
    assert queued_bytes(STATISTICS) == {("t", 0): 7, ("t", 12): 0}
    assert queued_bytes("{}") == {}


def test_old_statistics_are_unknown() -> None:
    clock = ManualClock()
    queue = FetchQueue(clock)
    assert queue.known() == {}
    queue.take(STATISTICS)
    clock.wait_ms(STATISTICS_AGE_MS_MAX)
    assert queue.known() == {("t", 0): 7, ("t", 12): 0}
    clock.wait_ms(1)
    assert queue.known() == {}
