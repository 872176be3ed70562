"""The coordinator with its real thread and sockets: it answers, and it closes, in every state."""

from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordinator_thread import CoordinatorThread
from laminar_core.driver.events import WorkersRunning
from laminar_core.driver.publication import JobIdentity
from laminar_core.errors import ErrorCode
from laminar_core.host.clock import SystemClock
from laminar_core.link.messages import (
    Cancel,
    Peers,
    Register,
    SnapshotAck,
    ToWorker,
    Trigger,
    decode_to_worker,
    encode,
)
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.link.versions import own_versions
from laminar_core.protocol.coordinator import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from tests.plan.plans import small_plan
from tests.records.manifests import subtask
from tests.store.stores import JOB, claim, open_job

PLAN = small_plan()
PATIENCE_S = 20


class Cluster:
    """A coordinator of one worker, which the test speaks for over a real socket."""

    def __init__(self) -> None:
        self.store = open_job()
        self.generation = claim(self.store)
        self.events: list = []
        parts = CoordinatorParts(
            identity=JobIdentity(JOB, self.generation, PLAN, 1),
            store=self.store,
            committers={},
            config=CoordinatorConfig(interval_ms=None),
            highest_id=CheckpointId(0),
            parent_id=None,
            rows_total=None,
            claim_sha256=self.store.claims.own_sha256(self.generation),
        )
        transport = CoordinatorTransport("ipc", "127.0.0.1", 1)
        self.thread = CoordinatorThread(parts, transport, SystemClock(), self.events.append)
        self.worker = ZmqWorkerTransport(self.thread.address, 0, "127.0.0.1")

    def register(self) -> None:
        self.say(
            Register(
                generation=self.generation,
                worker=0,
                pid=1,
                host="here",
                endpoint=self.worker.endpoint,
                public_key="",
                claim_sha256=self.store.claims.sha256(self.generation),
                versions=own_versions(),
                open_files_max=None,
            )
        )

    def say(self, message) -> None:
        self.worker.send_control(encode(message))

    def hear(self, kind: type) -> ToWorker:
        """The next message of this kind."""
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 1000 * PATIENCE_S
        while clock.monotonic_ms() < deadline_ms:
            for data in self.worker.receive_control():
                message = decode_to_worker(data)
                if isinstance(message, kind):
                    return message
            self.worker.wait(100)
        raise AssertionError(f"no {kind.__name__} came")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.thread.close("the test is over")
    cluster.worker.close()


def outcome(future: Future):
    return future.result(PATIENCE_S)


def test_a_checkpoint_from_request_to_answer(cluster):
    cluster.register()
    cluster.hear(Peers)
    answer = cluster.thread.coordinator.request(CheckpointKind.STOP)
    trigger = cluster.hear(Trigger)
    cluster.say(
        SnapshotAck(
            generation=cluster.generation,
            worker=0,
            checkpoint_id=trigger.checkpoint_id,
            entries=tuple(subtask(operator, 0) for operator in PLAN.operator_ids()),
            alignment=(),
        )
    )
    assert outcome(answer).outcome == "completed"
    assert outcome(cluster.thread.coordinator.outcome).kind == "stopped"
    assert isinstance(cluster.events[0], WorkersRunning)
    assert cluster.store.attempts.committed_ids() == [1]


def test_a_cancelled_worker_hears_of_it_although_the_coordinator_closes_at_once(cluster):
    cluster.register()
    cluster.hear(Peers)
    cluster.thread.coordinator.cancel("enough")
    cluster.thread.close("enough")
    assert cluster.hear(Cancel)


def test_closing_answers_whoever_still_waits(cluster):
    waiting = [cluster.thread.coordinator.request(CheckpointKind.MANUAL)]
    cluster.register()
    cluster.hear(Trigger)
    waiting.append(cluster.thread.coordinator.request(CheckpointKind.SAVEPOINT))
    cluster.thread.close("the stage was lost")
    assert wait(waiting, PATIENCE_S).not_done == set()
    assert {answer.result().outcome for answer in waiting} == {"aborted"}
    assert cluster.store.attempts.read_outcome(CheckpointId(1)).reason == "the stage was lost"


def test_a_message_that_makes_no_sense_ends_the_generation_and_closing_still_works(cluster):
    cluster.worker.send_control(b"{")
    ended = outcome(cluster.thread.coordinator.outcome)
    assert ended.code is ErrorCode.ILLEGAL_EVENT
    assert "the coordinator failed" in ended.reason


def test_closing_twice_and_asking_after_it_is_closed_are_harmless(cluster):
    cluster.thread.close("once")
    cluster.thread.close("twice")
    cluster.thread.coordinator.request(CheckpointKind.MANUAL)
    cluster.thread.coordinator.cancel("late")
