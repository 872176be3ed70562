"""The coordinator between its workers and the protocol: who lives, who is heard, how it ends."""

import pytest

from laminar_core.driver.checkpointing import Background as Threads
from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordination import Coordinator
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.events import DataFlowing, ProgressMade, RestoreProgressed, WorkersRunning
from laminar_core.driver.publication import JobIdentity
from laminar_core.errors import BrokenLink, ErrorCode, FencedError
from laminar_core.host.clock import ManualClock
from laminar_core.link.messages import (
    Abort,
    Begin,
    Cancel,
    Finish,
    GreetingsMissing,
    Peers,
    Ping,
    Progress,
    Register,
    Restoring,
    SnapshotAck,
    SnapshotDecline,
    SourceProgress,
    Trigger,
    WorkerFailed,
)
from laminar_core.link.unix_sockets import NearEndpoint
from laminar_core.link.versions import own_versions
from laminar_core.protocol.coordinator import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId, CheckpointKind, DeclineCause
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.records.sink_numbers import SinkNumbers, sinks_of
from laminar_core.records.source_numbers import SourceNumbers, sources_of
from laminar_core.store.generation_summary import read_generation
from laminar_core.testing.ledger import Ledger, LedgerCommitter
from tests.driver.hosts import Background, Link
from tests.plan.plans import small_plan
from tests.records.manifests import subtask
from tests.store.stores import JOB, claim, open_job

PLAN = small_plan()


class Cluster:
    """A coordinator of two workers that the test speaks for."""

    def __init__(self, **changes) -> None:
        self.clock, self.link, self.events = ManualClock(), Link(), []
        self.io, self.commits, self.deletions = Background(), Background(), Background()
        self.control, self.copies, self.scrub = Background(), Background(), Background()
        self.discovery = Background()
        self.store = open_job()
        self.generation = claim(self.store)
        fields = {
            "identity": JobIdentity(JOB, self.generation, PLAN, 2),
            "store": self.store,
            "committers": {},
            "config": CoordinatorConfig(interval_ms=None),
            "highest_id": CheckpointId(0),
            "parent_id": None,
            "rows_total": 100,
            "claim_sha256": self.store.claims.own_sha256(self.generation),
        }
        parts = CoordinatorParts(**fields | changes)
        threads = Threads(
            self.io,
            self.commits,
            self.deletions,
            self.control,
            self.copies,
            self.scrub,
            self.discovery,
        )
        self.coordinator = Coordinator(parts, self.link, threads, self.clock, self.events.append)

    @property
    def outcome(self):
        future = self.coordinator.outcome
        return future.result() if future.done() else None

    def turn(self, wait_ms: float = 0) -> None:
        self.clock.wait_ms(wait_ms)
        for _ in range(4):
            self.coordinator.turn()
            self.io.run()
            self.commits.run()
            self.deletions.run()

    def hear(self, *messages) -> None:
        for message in messages:
            self.link.arrive(message)
        self.turn()

    def register(self, *workers: int, generation: int | None = None, **changes) -> None:
        fields = {
            "generation": generation or self.generation,
            "host": "here",
            "public_key": "",
            "claim_sha256": self.store.claims.sha256(self.generation),
            "versions": own_versions(),
            "open_files_max": None,
        }
        for worker in workers:
            own = {"worker": worker, "pid": 100 + worker, "endpoint": f"ipc://{worker}"}
            self.hear(Register(**fields | own | changes))

    def greet(self, *workers: int) -> None:
        """Let these workers report that the greeting of the other one has arrived."""
        self.hear(
            *(
                GreetingsMissing(generation=self.generation, worker=worker, senders=())
                for worker in workers
            )
        )

    def begin(self) -> None:
        self.register(0, 1)
        self.greet(0, 1)

    def progress(self, worker: int, rows: int = 0, *, drained: bool = False, **changes) -> Progress:
        fields = {
            "generation": self.generation,
            "worker": worker,
            "rows_in": rows,
            "rows_out": 0,
            "rows_late": 0,
            "flowing": rows > 0,
            "watermark_us": None,
            "drained": drained,
        }
        return Progress(**fields | changes)

    def acknowledge(self, checkpoint_id: int, *workers: int) -> None:
        self.hear(
            *(
                SnapshotAck(
                    generation=self.generation,
                    worker=worker,
                    checkpoint_id=checkpoint_id,
                    entries=tuple(subtask(o, worker) for o in PLAN.operator_ids()),
                    alignment=(),
                )
                for worker in workers
            )
        )

    def told(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def cluster():
    return Cluster()


class TestRegistration:
    def test_nobody_begins_before_everybody_is_there(self, cluster):
        near = NearEndpoint(directory="/near/1", proof="p")
        cluster.register(1, near=near)
        assert cluster.link.to(1, Peers) == []
        cluster.register(0)
        (peers,) = cluster.link.to(1, Peers)
        assert [peer.endpoint for peer in peers.peers] == ["ipc://0", "ipc://1"]
        assert [peer.near for peer in peers.peers] == [None, near]
        assert cluster.told(WorkersRunning) == []

    def test_nobody_begins_before_everybody_has_been_greeted_by_everybody(self, cluster):
        cluster.register(0, 1)
        cluster.greet(0)
        cluster.greet(0)
        assert (cluster.link.to(0, Begin), cluster.coordinator.has_run) == ([], False)
        cluster.greet(1)
        assert [len(cluster.link.to(worker, Begin)) for worker in (0, 1)] == [1, 1]
        assert cluster.told(WorkersRunning)[0].pids == (100, 101)
        assert cluster.coordinator.has_run

    def test_pairs_that_do_not_reach_each_other_are_named(self):
        cluster = Cluster(deadlines=Deadlines(connect_ms=5_000))
        cluster.register(0, host="w0", endpoint="tcp://10.0.0.1:4000")
        cluster.register(1, host="w1", endpoint="tcp://10.0.0.2:4001")
        cluster.greet(0)
        cluster.turn(5_000)
        assert cluster.outcome is None
        cluster.turn(1_001)
        outcome = cluster.outcome
        assert (outcome.code, outcome.restart_helps) == (ErrorCode.WORKERS_UNREACHABLE, True)
        (pair,) = outcome.unreachable
        assert (pair.sender, pair.receiver, pair.address) == (0, 1, "tcp://10.0.0.2:4001")
        assert "worker 0 on w0 to worker 1 on w1 at tcp://10.0.0.2:4001" in outcome.reason
        assert outcome.unreachable_count == 1
        cluster.greet(1)
        assert cluster.link.to(0, Begin) == []

    def test_a_worker_of_another_version_ends_the_start(self, cluster):
        other = own_versions().model_copy(update={"laminar": "0.0.1"})
        cluster.register(1, host="far", versions=other)
        outcome = cluster.outcome
        assert (outcome.code, outcome.restart_helps) == (ErrorCode.VERSIONS_DIFFER, False)
        assert "host far has Laminar 0.0.1 and the driver" in outcome.reason

    def test_a_worker_that_may_open_too_few_files_ends_the_start(self, cluster):
        cluster.register(1, host="far", endpoint="tcp://10.0.0.2:1", open_files_max=100)
        assert cluster.outcome.code is ErrorCode.INVALID_OPTION
        assert "host far may have 100 open files" in cluster.outcome.reason

    def test_a_loopback_address_is_not_told_to_other_hosts(self, cluster):
        cluster.register(0, host="w0", endpoint="tcp://10.0.0.1:4000")
        cluster.register(1, host="w1", endpoint="tcp://127.0.1.1:4001")
        assert cluster.outcome.code is ErrorCode.LOOPBACK_ADDRESS
        assert "worker 1 on w1 listens at tcp://127.0.1.1:4001" in cluster.outcome.reason
        assert cluster.link.to(0, Peers) == []

    def test_on_one_host_loopback_addresses_are_well(self, cluster):
        cluster.register(0, endpoint="tcp://127.0.0.1:4000")
        cluster.register(1, endpoint="tcp://[::1]:4001")
        assert len(cluster.link.to(0, Peers)) == 1

    @pytest.mark.parametrize("seen", [None, "0" * 64])
    def test_a_worker_that_sees_another_store_ends_the_start(self, cluster, seen):
        cluster.register(0)
        cluster.register(1, host="far", claim_sha256=seen)
        outcome = cluster.outcome
        assert (outcome.code, outcome.restart_helps) == (ErrorCode.STORE_NOT_SHARED, False)
        assert outcome.reason.startswith("worker 1: memory:")
        assert "on host far" in outcome.reason
        assert not cluster.link.to(0, Peers)

    def test_a_zombie_that_registers_is_not_heard(self, cluster):
        cluster.register(0)
        cluster.register(1, generation=7)
        assert cluster.told(WorkersRunning) == []

    def test_no_periodic_checkpoint_is_triggered_before(self):
        cluster = Cluster(config=CoordinatorConfig(interval_ms=10))
        cluster.register(0)
        cluster.turn(100)
        assert cluster.link.to(0, Trigger) == []
        cluster.register(1)
        cluster.greet(0, 1)
        cluster.turn(100)
        assert [m.checkpoint_id for m in cluster.link.to(0, Trigger)] == [1]

    def test_a_request_that_comes_before_waits_for_the_workers(self, cluster):
        answer = cluster.coordinator.request(CheckpointKind.STOP)
        cluster.register(0)
        assert cluster.link.to(0, Trigger) == []
        assert cluster.store.attempts.ids() == []
        cluster.register(1)
        cluster.greet(0, 1)
        assert [len(cluster.link.to(worker, Trigger)) for worker in (0, 1)] == [1, 1]
        cluster.acknowledge(1, 0, 1)
        assert answer.result(0).outcome == "completed"
        assert cluster.outcome.kind == "stopped"

    def test_a_request_that_waits_for_workers_is_answered_when_the_generation_ends(self, cluster):
        answer = cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.turn()
        cluster.coordinator.abandon("the stage was lost")
        assert (answer.result(0).outcome, answer.result(0).reason) == (
            "aborted",
            "the stage was lost",
        )

    def test_so_is_one_that_nobody_has_looked_at(self, cluster):
        answer = cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.coordinator.abandon("the stage was lost")
        assert answer.result(0).outcome == "aborted"

    def test_workers_that_never_come_end_the_generation(self):
        cluster = Cluster(deadlines=Deadlines(register_ms=5_000))
        cluster.register(1)
        cluster.turn(4_000)
        assert cluster.outcome is None
        cluster.turn(2_000)
        assert cluster.outcome.code is ErrorCode.NOT_ENOUGH_SLOTS
        assert "only 1 of 2 workers started within 5 s" in cluster.outcome.reason

    def test_workers_that_still_restore_are_not_called_too_few_slots(self):
        cluster = Cluster(deadlines=Deadlines(register_ms=5_000))
        cluster.register(0)
        cluster.hear(restoring(cluster, 1, read=2_000_000))
        cluster.turn(6_000)
        assert cluster.outcome.code is ErrorCode.SLOW_START
        assert cluster.outcome.reason == (
            "all 2 workers started, and 1 were not ready within 5 s: worker 1 had read 2.0 of 8.0 "
            "MB of state; give them more time (--start-timeout)"
        )

    def test_the_progress_of_a_restore_is_reported_once_everybody_has_started(self):
        cluster = Cluster()
        cluster.hear(restoring(cluster, 0, read=0))
        assert [e for e in cluster.events if isinstance(e, RestoreProgressed)] == []
        cluster.hear(restoring(cluster, 1, read=0), restoring(cluster, 0, read=8_000_000))
        told = [e for e in cluster.events if isinstance(e, RestoreProgressed)]
        assert [(e.percent, e.files, e.files_total) for e in told] == [(0.0, 0, 8), (50.0, 4, 8)]


def restoring(cluster, worker: int, read: int) -> Restoring:
    return Restoring(
        generation=cluster.generation,
        worker=worker,
        files=read // 2_000_000,
        files_total=4,
        size_bytes=read,
        bytes_total=8_000_000,
    )


class TestSilence:
    def test_a_worker_that_says_nothing_is_lost(self, cluster):
        cluster.begin()
        for _ in range(31):
            cluster.hear(cluster.progress(0))
            assert cluster.outcome is None
            cluster.turn(1_000)
        cluster.turn(1_000)
        assert cluster.outcome.code is ErrorCode.WORKER_LOST
        assert cluster.outcome.reason.startswith("worker 1: no sign of life for 3")

    def test_the_voice_of_a_zombie_is_no_sign_of_life(self, cluster):
        cluster.begin()
        for _ in range(33):
            cluster.hear(cluster.progress(0), cluster.progress(1, generation=7))
            cluster.turn(1_000)
        assert cluster.outcome.reason.startswith("worker 1")

    def test_the_coordinator_is_never_silent_itself(self, cluster):
        cluster.begin()
        for _ in range(5):
            cluster.turn(1_000)
        assert len(cluster.link.to(0, Ping)) >= 5

    def test_it_wants_its_next_turn_when_something_is_due(self):
        cluster = Cluster(config=CoordinatorConfig(interval_ms=150))
        cluster.begin()
        assert 100 < cluster.coordinator.wait_ms() <= 150
        cluster.turn(150)
        assert cluster.coordinator.wait_ms() > 0


class TestProgress:
    def test_the_first_rows_are_reported_once(self, cluster):
        cluster.begin()
        cluster.hear(cluster.progress(0))
        assert cluster.told(DataFlowing) == []
        cluster.hear(cluster.progress(0, 5), cluster.progress(1, 5), cluster.progress(0, 9))
        assert len(cluster.told(DataFlowing)) == 1

    def test_totals_and_the_slowest_watermark(self, cluster):
        cluster.begin()
        cluster.hear(cluster.progress(0, 5, watermark_us=7), cluster.progress(1, 20))
        cluster.turn(600)
        cluster.hear(cluster.progress(1, 30, watermark_us=3))
        cluster.turn(500)
        first, second = cluster.told(ProgressMade)[-2:]
        assert (first.rows_in, first.watermark_us) == (25, None)
        assert (second.rows_in, second.watermark_us, second.rows_total) == (35, 3, 100)
        assert second.rows_per_s == pytest.approx(20, rel=0.05)

    def test_events_and_heartbeats_have_the_numbers_of_each_source(self, cluster):
        cluster.begin()
        for worker, lag in enumerate((3, None)):
            numbers = SourceNumbers(splits=1, lag_rows=lag, letters=worker)
            sources = {"in": SourceProgress(rows_unread=0, numbers=numbers)}
            cluster.hear(cluster.progress(worker, sources=sources))
        cluster.turn(1_100)
        found = {"in": SourceNumbers(splits=2, lag_rows=None, letters=1)}
        assert cluster.told(ProgressMade)[-1].sources == found
        beat = read_generation(cluster.store.objects, cluster.store.paths, cluster.generation)
        assert sources_of(beat.heartbeat.progress) == found

    def test_events_and_heartbeats_have_the_numbers_of_each_sink(self):
        cluster = Cluster(committers={"out": LedgerCommitter(Ledger())})
        cluster.begin()
        cluster.hear(cluster.progress(0), cluster.progress(1))
        cluster.turn(1_100)
        found = {"out": SinkNumbers()}
        assert cluster.told(ProgressMade)[-1].sinks == found
        beat = read_generation(cluster.store.objects, cluster.store.paths, cluster.generation)
        assert sinks_of(beat.heartbeat.progress) == found

    def test_unaligned_cuts_of_all_workers_are_reported(self, cluster):
        cluster.begin()
        for worker in (0, 1):
            metrics = UnalignedCheckpointMetrics(1 + worker, worker, 10)
            cluster.hear(cluster.progress(worker, unaligned=metrics))
        cluster.turn(600)
        assert cluster.told(ProgressMade)[-1].unaligned == UnalignedCheckpointMetrics(3, 1, 20)

    def test_when_everybody_is_drained_one_final_checkpoint_ends_the_job(self, cluster):
        cluster.begin()
        cluster.hear(cluster.progress(0, 10, drained=True))
        assert cluster.link.to(0, Trigger) == []
        for _ in range(3):
            cluster.hear(cluster.progress(1, 20, drained=True))
        assert [m.kind for m in cluster.link.to(0, Trigger)] == ["final"]
        cluster.acknowledge(1, 0, 1)
        assert (cluster.outcome.kind, cluster.outcome.counts.rows_in) == ("finished", 30)
        assert len(cluster.link.to(1, Finish)) == 1

    def test_a_registration_that_is_late_holds_the_final_checkpoint_up(self, cluster):
        """Only its signs of life came through: it would never hear of the checkpoint."""
        cluster.register(0)
        cluster.hear(cluster.progress(0, drained=True), cluster.progress(1, drained=True))
        assert cluster.link.to(0, Trigger) == []
        cluster.register(1)
        cluster.greet(0, 1)
        assert [len(cluster.link.to(worker, Trigger)) for worker in (0, 1)] == [1, 1]

    def test_a_final_checkpoint_that_is_lost_is_tried_again(self, cluster):
        cluster.begin()
        cluster.hear(cluster.progress(0, drained=True), cluster.progress(1, drained=True))
        decline = SnapshotDecline(
            generation=cluster.generation,
            worker=1,
            checkpoint_id=1,
            cause=DeclineCause.FAILED,
            reason="no space",
        )
        cluster.hear(decline)
        cluster.turn(300)
        assert [m.checkpoint_id for m in cluster.link.to(0, Trigger)] == [1, 2]
        cluster.acknowledge(2, 0, 1)
        assert cluster.outcome.kind == "finished"


class TestCheckpoints:
    def test_acknowledgements_of_a_zombie_count_for_nothing(self, cluster):
        cluster.begin()
        cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.turn()
        cluster.acknowledge(1, 0)
        ack = SnapshotAck(generation=7, worker=1, checkpoint_id=1, entries=(), alignment=())
        cluster.hear(ack)
        assert cluster.store.manifests.ids() == []
        cluster.acknowledge(1, 1)
        assert cluster.store.manifests.ids() == [1]

    @pytest.mark.parametrize("stranger", [2, 99])
    def test_a_worker_that_nobody_expects_has_no_part_in_a_checkpoint(self, cluster, stranger):
        cluster.begin()
        cluster.register(stranger)
        cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.turn()
        cluster.acknowledge(1, 0, stranger)
        assert cluster.store.manifests.ids() == []
        cluster.acknowledge(1, 1)
        manifest = cluster.store.manifests.read(1)
        assert {entry.subtask_index for entry in manifest.subtasks} == {0, 1}

    def test_one_worker_cannot_speak_for_another(self, cluster):
        cluster.begin()
        cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.turn()
        cluster.acknowledge(1, 0, 0)
        assert cluster.store.manifests.ids() == []

    def test_a_worker_that_is_busy_with_given_up_checkpoints_holds_up_the_next_one(self, cluster):
        cluster.begin()
        cluster.hear(cluster.progress(1, given_up=2))
        cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.turn()
        assert cluster.link.to(0, Trigger) == []
        cluster.hear(cluster.progress(0), cluster.progress(1, given_up=1))
        assert len(cluster.link.to(0, Trigger)) == 1

    def test_a_worker_whose_background_hangs_does_not_end_all_attempts(self):
        """The next one fails as well and is counted, which ends the generation at some point."""
        cluster = Cluster(config=CoordinatorConfig(interval_ms=None, timeout_ms=5_000))
        cluster.begin()
        cluster.hear(cluster.progress(1, given_up=2))
        cluster.coordinator.request(CheckpointKind.MANUAL)
        for _ in range(4):
            cluster.turn(wait_ms=1_000)
            cluster.hear(cluster.progress(0), cluster.progress(1, given_up=2))
        assert cluster.link.to(0, Trigger) == []
        cluster.turn(wait_ms=1_000)
        assert len(cluster.link.to(0, Trigger)) == 1

    def test_a_decline_names_the_worker(self, cluster):
        cluster.begin()
        answer = cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.turn()
        cluster.hear(
            SnapshotDecline(
                generation=cluster.generation,
                worker=1,
                checkpoint_id=1,
                cause=DeclineCause.FAILED,
                reason="full",
            )
        )
        assert answer.result(0).reason == "worker 1: full"
        assert [len(cluster.link.to(worker, Abort)) for worker in (0, 1)] == [1, 1]


class TestOutcome:
    def test_a_worker_that_fails_says_why(self, cluster):
        cluster.begin()
        cluster.hear(
            WorkerFailed(
                generation=cluster.generation,
                worker=1,
                code="null-key",
                reason="row 7 has no key",
                restart_helps=False,
            )
        )
        outcome = cluster.outcome
        assert (outcome.kind, outcome.code) == ("failed", ErrorCode.NULL_KEY)
        assert (outcome.reason, outcome.restart_helps) == ("worker 1: row 7 has no key", False)

    def test_connections_that_stayed_away_are_in_the_outcome(self, cluster):
        cluster.register(0, 1)
        link = BrokenLink(sender=0, sender_host="a", receiver=1, receiver_host="b")
        cluster.hear(
            WorkerFailed(
                generation=cluster.generation,
                worker=1,
                code="link-broken",
                reason="silent",
                restart_helps=True,
                links=(link,),
            )
        )
        assert (cluster.outcome.code, cluster.outcome.links) == (ErrorCode.LINK_BROKEN, (link,))

    def test_only_the_first_word_counts(self, cluster):
        cluster.coordinator.fail(ErrorCode.WORKER_LOST, "the first")
        cluster.coordinator.fenced(FencedError(ErrorCode.FENCED, "the second"))
        cluster.coordinator.cancel("the third")
        cluster.coordinator.last_commit_done(CheckpointKind.FINAL)
        assert (cluster.outcome.kind, cluster.outcome.reason) == ("failed", "the first")

    def test_being_fenced_is_an_outcome_of_its_own(self, cluster):
        claim(cluster.store)
        cluster.turn(1_500)
        assert (cluster.outcome.kind, cluster.outcome.restart_helps) == ("fenced", False)

    def test_cancelling_tells_the_workers(self, cluster):
        cluster.begin()
        cluster.coordinator.cancel("enough")
        assert cluster.link.to(1, Cancel) == []
        cluster.turn()
        assert len(cluster.link.to(1, Cancel)) == 1
        assert (cluster.outcome.code, cluster.outcome.restart_helps) == (ErrorCode.CANCELLED, False)

    def test_whatever_is_posted_wakes_it(self, cluster):
        wakes = cluster.link.wakes
        cluster.coordinator.request(CheckpointKind.MANUAL)
        cluster.coordinator.cancel("enough")
        assert cluster.link.wakes == wakes + 2
