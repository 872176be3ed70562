"""A worker's transactions: few ids, used again once that is safe, and rows in their order."""

import json
from collections.abc import Callable

import pytest

from laminar_core.connectors.kafka.open_transactions import OpenTransaction
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.kafka.transaction_committer import TransactionCommitter
from laminar_core.connectors.kafka.transaction_writer import WAITING_BYTES_MAX
from laminar_core.connectors.kafka.transactions import Transactions, TransactionState
from laminar_core.driver.sink_watch import SinkWatch
from laminar_core.errors import StorageUnavailable
from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.operators.base import JsonObject, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.store.staging import StagingArea
from tests.connectors.kafka.publishing import SCHEMA, read_topic, rows
from tests.records.manifests import manifest
from tests.records.manifests import subtask as entry
from tests.store.stores import claim, open_job


class Subtask:
    """One worker's writer, and the committer of its sink."""

    def __init__(self, kafka: str, topic: str, timeout: str | None = None) -> None:
        store = open_job()
        claim(store)
        staging = StagingArea(store.objects, store.paths, f"out-{topic}")
        self.kafka, self.topic = kafka, topic
        self.sink = KafkaSink(
            kafka, topic, key="id", delivery="transaction", transaction_timeout=timeout
        )
        context = SubtaskContext(staging.operator_id, 0, 1, 128, Generation(1), staging=staging)
        self.writer = self.sink.open(context, SCHEMA)
        self.committer = TransactionCommitter(self.sink, staging)
        self.committer.take_over(Generation(1))
        self.committer.discard_uncommitted(Generation(1))

    def commit(self, checkpoint_id: int, committables: tuple[JsonObject, ...]) -> None:
        self.committer.commit(CheckpointId(checkpoint_id), committables)
        self.writer.committed(CheckpointId(checkpoint_id))

    def ids(self) -> list[int]:
        return [json.loads(value)["id"] for _, value in read_topic(self.kafka, self.topic)]

    def sees(self, ids: list[int]) -> bool:
        return any(self.ids() == ids for _ in range(100))


@pytest.fixture
def subtask(kafka: str, new_topic: Callable[..., str]) -> Subtask:
    return Subtask(kafka, new_topic())


def test_the_time_that_is_left_for_a_commit_falls_with_the_clock(kafka, new_topic):
    subtask = Subtask(kafka, new_topic(), timeout="10 minutes")
    subtask.writer.write(rows(0, 10))
    offered = subtask.writer.snapshot(CheckpointId(1))().committables
    clock = ManualClock(SystemClock().now_ms())
    watch = SinkWatch(["sink"])
    entries = [entry("sink", 0, committables=offered)]

    def left_ms() -> int:
        found = watch.numbers(entries, clock.now_ms())["sink"].transaction_expires_in_ms
        assert found is not None
        return found

    first_ms = left_ms()
    assert 9 * 60_000 < first_ms <= 10 * 60_000
    clock.wait_ms(60_000)
    assert left_ms() == first_ms - 60_000
    subtask.commit(1, offered)
    others = (entry("window", 0), entry("window", 1), entry("sink", 1))
    watch.committed(manifest(subtasks=(*entries, *others)), {"sink": 20.0})
    done = SinkNumbers(publish_rows_per_s=500)
    assert watch.numbers(entries, clock.now_ms()) == {"sink": done}


def slots(snapshot: Snapshot) -> list[str]:
    names = [OpenTransaction.from_json(each).transactional_id for each in snapshot.committables]
    return [name.rpartition(".")[2] for name in names]


def test_an_id_is_used_again_once_its_commit_is_recorded(subtask: Subtask):
    used, before = [], Snapshot()
    for number in (1, 2, 3):
        subtask.writer.write(rows(number * 10, 10))
        snapshot = subtask.writer.snapshot(CheckpointId(number))()
        used += slots(snapshot)
        if number > 1:
            subtask.commit(number - 1, before.committables)
        before = snapshot
    assert used == ["0", "1", "0"]
    subtask.commit(3, before.committables)
    assert subtask.sees(list(range(10, 40)))


def test_an_interval_without_rows_has_no_transaction(subtask: Subtask):
    subtask.writer.write(rows(0, 0))
    assert subtask.writer.snapshot(CheckpointId(1))().committables == ()


def test_rows_of_the_next_interval_come_after_those_of_this_one(subtask: Subtask):
    subtask.writer.write(rows(0, 10))
    first = subtask.writer.snapshot(CheckpointId(1))
    subtask.writer.write(rows(10, 10))  # Before the flush at the barrier: they wait.
    second = subtask.writer.snapshot(CheckpointId(2))
    parts = first().committables + second().committables
    subtask.commit(2, parts)
    assert subtask.sees(list(range(20)))


def test_rows_of_a_checkpoint_that_failed_go_with_the_next_one(subtask: Subtask):
    subtask.writer.write(rows(0, 10))
    subtask.writer.snapshot(CheckpointId(1))  # Given up before it was finished.
    subtask.writer.write(rows(10, 10))
    subtask.commit(2, subtask.writer.snapshot(CheckpointId(2))().committables)
    assert subtask.sees(list(range(20)))


def test_rows_in_no_snapshot_are_aborted_at_the_end(subtask: Subtask):
    subtask.writer.write(rows(0, 10))
    subtask.writer.close()
    name = f"{subtask.committer.markers.group}.{subtask.committer._staging.run_id()}.g1.s0.0"
    with Transactions(subtask.sink.cluster) as transactions:
        assert transactions.describe([name])[name].state is not TransactionState.ONGOING


def test_too_many_rows_that_wait_stop_the_worker(kafka: str, new_topic: Callable[..., str]):
    subtask = Subtask(kafka, new_topic(), timeout="5 seconds")
    subtask.writer.write(rows(0, 10))
    subtask.writer.snapshot(CheckpointId(1))  # Nobody flushes.
    many = rows(10, 1 + WAITING_BYTES_MAX // 30)
    with pytest.raises(StorageUnavailable, match="did not take all messages in time"):
        subtask.writer.write(many)


def test_a_transaction_that_expired_before_its_barrier_fails_the_job(
    kafka: str, new_topic: Callable[..., str]
):
    subtask = Subtask(kafka, new_topic(), timeout="5 seconds")
    subtask.writer.write(rows(0, 10))
    first = subtask.writer.snapshot(CheckpointId(1))
    (interval,) = subtask.writer._target._pinned
    interval._producer.flush(20)
    wait_until_expired(subtask, interval._name)
    with pytest.raises(StorageUnavailable):
        first()
    with pytest.raises(StorageUnavailable):
        subtask.writer.snapshot(CheckpointId(2))


def wait_until_expired(subtask: Subtask, name: str) -> None:
    for _ in range(6_000):
        with Transactions(subtask.sink.cluster) as transactions:
            if transactions.describe([name])[name].state is TransactionState.ABORTED:
                return
    raise AssertionError("the broker did not abort it")
