"""Each row of a completed checkpoint is in the topic once, wherever the driver stops or sleeps.

Against a real broker. Workers write into transactions and are gone; committers die, or sleep while
a successor acts; transactions expire, all of a checkpoint or a part of them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from laminar_core.connectors.kafka.open_transactions import OpenTransaction
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.kafka.transaction_committer import (
    STEPS,
    SWEEP_MS,
    TransactionCommitter,
    TransactionStep,
)
from laminar_core.connectors.kafka.transactions import Transactions, TransactionState
from laminar_core.connectors.outlook import Committable, Committed, Doubtful, Lost
from laminar_core.errors import (
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.host.clock import ManualClock
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.pre_committed import first_expiry_ms
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.staging import StagingArea
from tests.connectors.kafka.publishing import ROWS, SCHEMA, read_topic, rows
from tests.connectors.kafka.writing import until
from tests.store.stores import claim, open_job


class DiedError(BaseException):
    """Ends a committer where it is."""


@dataclass
class Job:
    """A job with one sink and two workers, which are gone once they have written."""

    kafka: str
    topic: str
    staged: dict[int, tuple[JsonObject, ...]] = field(default_factory=dict)
    store: CheckpointStore = field(default_factory=open_job)

    def __post_init__(self) -> None:
        claim(self.store)
        self.sink = KafkaSink(self.kafka, self.topic, key="id", delivery="transaction")
        self.staging = StagingArea(self.store.objects, self.store.paths, f"out-{self.topic}")

    def writer(self, subtask: int, generation: int = 1, timeout: str | None = None):
        sink = KafkaSink(
            self.kafka, self.topic, key="id", delivery="transaction", transaction_timeout=timeout
        )
        context = SubtaskContext(
            self.staging.operator_id, subtask, 2, 128, Generation(generation), staging=self.staging
        )
        return sink.open(context, SCHEMA)

    def stage(
        self,
        checkpoint_id: int,
        generation: int = 1,
        timeouts: tuple[str | None, ...] = (None,) * 2,
    ) -> tuple[JsonObject, ...]:
        """Write the rows of this checkpoint, a half in each of two workers, and let go of them."""
        found: list[JsonObject] = []
        for subtask, timeout in enumerate(timeouts):
            # Subtasks of their own for each checkpoint: these writers do not know which slots
            # are in use by the others.
            writer = self.writer(2 * checkpoint_id + subtask, generation, timeout)
            writer.write(rows((checkpoint_id - 1) * ROWS + subtask * ROWS // 2, ROWS // 2))
            found += writer.snapshot(CheckpointId(checkpoint_id))().committables
            writer.close()
        self.staged[checkpoint_id] = tuple(found)
        return self.staged[checkpoint_id]

    def committer(self, observe: Callable[[TransactionStep], None] | None = None):
        return TransactionCommitter(self.sink, self.staging, observe=observe)

    def publish(self, checkpoint_id: int, committer: TransactionCommitter) -> None:
        committer.commit(CheckpointId(checkpoint_id), self.staged[checkpoint_id])

    def recover(self, generation: int, upto: int) -> TransactionCommitter:
        """Do what a start does: take over, look, commit again, discard."""
        committer = self.committer()
        committer.take_over(Generation(generation))
        for checkpoint_id in sorted(n for n in self.staged if n <= upto):
            look = committer.outlook(CheckpointId(checkpoint_id), self.staged[checkpoint_id])
            assert isinstance(look, Committed | Committable)
            self.publish(checkpoint_id, committer)
        committer.discard_uncommitted(Generation(generation))
        return committer

    def state_of(self, committable: JsonObject) -> TransactionState:
        name = OpenTransaction.from_json(committable).transactional_id
        with Transactions(self.sink.cluster) as transactions:
            return transactions.describe([name])[name].state

    def wait_until_aborted(self, committable: JsonObject) -> None:
        """Wait for the broker, which looks for transactions that expired once a second."""
        waits = Producer({"bootstrap.servers": self.kafka, "log_level": 0})
        for _ in range(600):
            if self.state_of(committable) is TransactionState.ABORTED:
                return
            waits.poll(0.1)
        raise AssertionError("the broker has aborted nothing for a minute")

    def ids(self) -> list[int]:
        """Return the visible ids, once the broker shows what it has decided."""
        return sorted(json.loads(value)["id"] for _, value in read_topic(self.kafka, self.topic))

    def sees(self, upto: int) -> bool:
        """Whether readers see exactly the checkpoints up to this one; markers take a moment."""
        return any(self.ids() == list(range(upto * ROWS)) for _ in range(100))


@pytest.fixture
def job(kafka: str, new_topic: Callable[..., str]) -> Job:
    return Job(kafka, new_topic(2))


def started(job: Job, observe: Callable[[TransactionStep], None] = lambda _: None):
    """A committer of generation 1 that has committed checkpoint 1."""
    committer = job.committer()
    committer.take_over(Generation(1))
    committer.discard_uncommitted(Generation(1))
    job.stage(1)
    job.publish(1, committer)
    committer._observe = observe
    return committer


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", STEPS[1:])
def test_a_committer_that_dies_at_any_step_is_followed_by_one_that_knows(
    job: Job, step: TransactionStep
):
    def die(done: TransactionStep) -> None:
        if done == step:
            raise DiedError

    first = started(job, die)
    job.stage(2)
    with pytest.raises(DiedError):
        job.publish(2, first)
    successor = job.recover(2, upto=2)
    job.stage(3, generation=2)
    job.publish(3, successor)
    assert job.sees(3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", STEPS)
def test_a_committer_that_wakes_at_any_step_changes_nothing_any_more(
    job: Job, step: TransactionStep
):
    successors = []

    def sleep(done: TransactionStep) -> None:
        if done == step and not successors:
            successors.append(None)
            successors[0] = job.recover(2, upto=2)

    first = started(job, sleep)
    job.stage(2)
    if step == "taken-over":
        first.take_over(Generation(1))
    try:
        job.publish(2, first)
    except FencedError:
        assert step != "marker-set"
    job.stage(3, generation=2)
    try:
        job.publish(3, successors[0])
    except FencedError:  # The sleeper took over: the owner does it again.
        successors[0].take_over(Generation(2))
        job.publish(3, successors[0])
    assert job.sees(3)


@pytest.mark.parametrize("step", ["marker-read", "described"])
def test_a_sleeper_cannot_commit_what_its_successor_went_back_behind(job: Job, step):
    def sleep(done: TransactionStep) -> None:
        if done == step:
            job.recover(2, upto=1)

    first = started(job, sleep)
    job.stage(2)
    with pytest.raises(FencedError):
        job.publish(2, first)
    assert {job.state_of(each) for each in job.staged[2]} == {TransactionState.NONE}
    assert job.sees(1)


def test_a_commit_that_was_interrupted_counts_as_visible(job: Job):
    def die(done: TransactionStep) -> None:
        if done == "half-ended":
            raise DiedError

    first = started(job, die)
    job.stage(2)
    with pytest.raises(DiedError):
        job.publish(2, first)
    successor = job.committer()
    successor.take_over(Generation(2))
    assert successor.last_committed() == 2
    assert isinstance(successor.outlook(CheckpointId(2), job.staged[2]), Committable)


def test_what_a_later_checkpoint_carries_is_committed_once(job: Job):
    committer = started(job)
    carried = job.stage(2) + job.stage(3)
    committer.commit(CheckpointId(3), job.staged[1] + carried + carried)
    committer.commit(CheckpointId(4), carried)
    assert committer.last_committed() == 4 or committer.last_committed() == 3
    assert job.sees(3)


class TestOutlook:
    def test_it_says_until_when_a_checkpoint_can_be_committed(self, job: Job):
        committer = started(job)
        parts = job.stage(2, timeouts=("10 minutes", "15 minutes"))
        look = committer.outlook(CheckpointId(2), parts)
        assert isinstance(look, Committable)
        name = OpenTransaction.from_json(parts[0]).transactional_id
        with Transactions(job.sink.cluster) as transactions:
            assert look.expires_at_ms == transactions.describe([name])[name].expires_at_ms
        assert first_expiry_ms(parts) == look.expires_at_ms, "the checkpoint has it, too"
        assert committer.outlook(CheckpointId(2), job.staged[1]) == Committed()

    def test_looking_fences_nobody(self, job: Job):
        owner = started(job)
        parts = job.stage(2)
        stranger = job.committer()
        # It looks again each time; the broker may show the old marker for a moment.
        until(lambda: stranger.last_committed() == 1)
        assert isinstance(stranger.outlook(CheckpointId(2), parts), Committable)
        job.publish(2, owner)
        until(lambda: stranger.outlook(CheckpointId(2), parts) == Committed())

    def test_a_transaction_that_expired_is_lost_for_certain(self, job: Job):
        committer = started(job)
        parts = job.stage(2, timeouts=("5 seconds", "5 seconds"))
        for each in parts:
            job.wait_until_aborted(each)
        lost = committer.outlook(CheckpointId(2), parts)
        assert isinstance(lost, Lost)
        assert (lost.rows, list(lost.gone)) == (ROWS, list(parts))
        with pytest.raises(CorruptCheckpointError) as refused:
            job.publish(2, committer)
        assert refused.value.code is ErrorCode.TRANSACTION_LOST
        assert job.sees(1)

    def test_a_checkpoint_of_which_a_part_expired_is_not_committed_in_part(self, job: Job):
        committer = started(job)
        parts = job.stage(2, timeouts=("5 seconds", None))
        job.wait_until_aborted(parts[0])
        lost = committer.outlook(CheckpointId(2), parts)
        assert isinstance(lost, Lost)
        assert (lost.rows, list(lost.gone)) == (ROWS // 2, [parts[0]])
        with pytest.raises(CorruptCheckpointError):
            job.publish(2, committer)
        assert job.state_of(parts[1]) is TransactionState.ONGOING
        # A person accepts the loss: the rest is committed.
        successor = job.committer()
        successor.take_over(Generation(2))
        successor.commit(CheckpointId(2), parts[1:])
        seen = [*range(ROWS), *range(ROWS + ROWS // 2, 2 * ROWS)]
        assert any(job.ids() == seen for _ in range(100))

    def test_an_id_that_no_broker_knows_leaves_a_doubt(self, job: Job):
        committer = started(job)
        forgotten = OpenTransaction(CheckpointId(2), 7, f"{committer.markers.group}.x", 1, 0)
        look = committer.outlook(CheckpointId(2), [forgotten.to_json()])
        assert isinstance(look, Doubtful)
        assert "7 messages" in look.why

    def test_committables_of_staged_rows_are_refused(self, job: Job):
        committer = started(job)
        with pytest.raises(CorruptCheckpointError, match="this is no transaction"):
            committer.outlook(CheckpointId(2), [{"checkpoint_id": 2, "rows": 1}])


class TestDeadGenerations:
    def test_an_orphan_no_longer_holds_readers_back(self, job: Job):
        started(job)
        orphan = job.writer(0)
        orphan.write(rows(900))
        orphan.snapshot(CheckpointId(2))()
        job.recover(2, upto=1)
        plain = Producer({"bootstrap.servers": job.kafka, "log_level": 0})
        for partition in (0, 1):
            plain.produce(job.topic, b'{"id": 40}', partition=partition)
        assert plain.flush(20) == 0
        assert any(job.ids() == [*range(ROWS), 40, 40] for _ in range(100))

    def test_one_that_is_begun_later_is_found_within_a_minute(self, job: Job):
        started(job)
        job.recover(2, upto=1)
        clock = ManualClock()
        committer = TransactionCommitter(job.sink, job.staging, clock)
        committer.take_over(Generation(2))
        (first, _) = job.stage(7)  # A worker of generation 1 that woke.
        committer.commit(CheckpointId(2), ())
        assert job.state_of(first) is TransactionState.ONGOING
        clock.wait_ms(SWEEP_MS)
        committer.commit(CheckpointId(3), ())
        assert job.state_of(first) is TransactionState.NONE

    def test_transactions_of_this_generation_and_of_others_stay(self, job: Job):
        committer = started(job)
        (mine, _) = job.stage(2)
        other = Job(job.kafka, job.topic, store=open_job())
        other.staging = StagingArea(other.store.objects, other.store.paths, "another")
        (of_others, _) = other.stage(2)
        committer.discard_uncommitted(Generation(1))
        assert job.state_of(mine) is TransactionState.ONGOING
        assert job.state_of(of_others) is TransactionState.ONGOING


def test_a_commit_without_a_connection_has_to_take_over_again(job: Job):
    committer = job.committer()
    job.stage(1)
    with pytest.raises(StorageUnavailable):
        job.publish(1, committer)
