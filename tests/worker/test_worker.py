"""One worker, with the test as its coordinator."""

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.connectors.discovery import first_splits
from laminar_core.errors import (
    BrokenLink,
    ConfigurationError,
    CorruptCheckpointError,
    DataError,
    ErrorCode,
    FencedError,
    LinkBrokenError,
    ProtocolError,
)
from laminar_core.host.calls import ThreadCalls
from laminar_core.host.clock import ManualClock
from laminar_core.link.messages import (
    Abort,
    Announce,
    Begin,
    Cancel,
    Completed,
    Finish,
    GreetingsMissing,
    Peer,
    Peers,
    Ping,
    Progress,
    Register,
    SnapshotAck,
    SnapshotDecline,
    Trigger,
    WorkerFailed,
)
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.link.versions import own_versions
from laminar_core.link.wire import FrameKind, Header, decode_header
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.greetings import GREETING_INTERVAL_MS
from laminar_core.protocol.types import DeclineCause, Generation
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.worker.deployment import COORDINATOR_SILENCE_MS, Deployment
from laminar_core.worker.snapshots import BackgroundThreads
from laminar_core.worker.urgency import REST_MS_MAX
from laminar_core.worker.worker import Phase, Worker
from tests.driver.hosts import Background, WorkerLink
from tests.simulated.simulated_jobs import Job, collect_job, normal, rows_of, windows_job
from tests.store.stores import open_job

GENERATION = 4


class Bench:
    """A worker that runs the whole job alone."""

    def __init__(self, job: Job | None = None, *faults: Fault, **changes: Any) -> None:
        self.job = job or windows_job(1)
        self.link, self.background, self.clock = WorkerLink(), Background(), ManualClock()
        plan = self.job.plan
        deployment = Deployment(
            job="payments",
            generation=Generation(GENERATION),
            parallelism=1,
            plan=plan,
            store_uri="memory://",
            address=CoordinatorAddress("ipc", "ipc://coordinator"),
            restored=None,
            claim_sha256=None,
            splits={node.operator_id: first_splits(node.source) for node in plan.sources()},
            **changes,
        )
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        threads = BackgroundThreads(self.background, self.background, ThreadCalls())
        self.worker = Worker(deployment, 0, self.link, self.store, threads, self.clock)

    def start(self) -> "Bench":
        self.worker.start("here")
        self.worker.register(pid=1, host="here")
        self.hear(
            Peers(generation=GENERATION, peers=(Peer(endpoint="ipc://me", public_key=""),)),
            Begin(generation=GENERATION),
        )
        return self

    def hear(self, *messages: Any) -> None:
        self.link.arrive(*messages)
        self.worker.run_once()

    def greeted_by(self, sender: int) -> None:
        header = Header(GENERATION, 0, sender, 0, FrameKind.GREETING, 0)
        self.link.data.append((header.encode(), b""))
        self.worker.run_once()

    def trigger(self, checkpoint_id: int) -> None:
        self.hear(trigger_of(checkpoint_id))

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.worker.run_once()

    def settle(self) -> None:
        """Everything the background has to do, and what the worker makes of it."""
        self.turn(20)
        self.background.run()
        self.turn(1)

    def said(self, kind: type) -> list:
        return self.link.heard(kind)


def trigger_of(checkpoint_id: int, *, overtakes: bool = False) -> Trigger:
    return Trigger(
        generation=GENERATION,
        checkpoint_id=checkpoint_id,
        kind="manual",
        created_ms=0,
        alignment_timeout_ms=0 if overtakes else None,
        unaligned=overtakes,
    )


def abort_of(checkpoint_id: int) -> Abort:
    return Abort(generation=GENERATION, checkpoint_id=checkpoint_id)


@pytest.fixture
def bench():
    return Bench().start()


class TestStart:
    def test_it_reads_nothing_before_it_knows_its_peers(self):
        bench = Bench()
        bench.worker.start("here")
        bench.worker.register(pid=7, host="here")
        bench.turn(5)
        (registered,) = bench.said(Register)
        assert (registered.pid, registered.endpoint) == (7, "ipc://me")
        assert registered.near == bench.link.near
        assert bench.worker.phase is Phase.REGISTERING
        assert bench.said(Progress)[0].rows_in == 0

    def test_it_greets_the_others_and_reads_nothing_before_it_may_begin(self):
        bench = Bench()
        bench.worker.start("here")
        bench.worker.register(pid=7, host="here")
        peers = [Peer(endpoint=f"ipc://{n}", public_key="") for n in range(3)]
        bench.hear(Peers(generation=GENERATION, peers=tuple(peers)))
        greetings = [
            (peer, decode_header(header).kind, decode_header(header).receiver)
            for peer, header, _ in bench.link.frames
        ]
        assert greetings == [(1, FrameKind.GREETING, 1), (2, FrameKind.GREETING, 2)]
        bench.greeted_by(2)
        bench.turn(5)
        assert bench.said(GreetingsMissing) == []
        bench.greeted_by(1)
        assert [report.senders for report in bench.said(GreetingsMissing)] == [()]
        bench.turn(5)
        assert bench.worker.phase is Phase.GREETING
        assert bench.worker.wiring.counts().rows_in == 0
        bench.hear(Begin(generation=GENERATION))
        bench.greeted_by(1)
        bench.turn(3)
        assert bench.worker.wiring.counts().rows_in > 0
        assert len(bench.said(GreetingsMissing)) == 1

    def test_a_greeting_is_repeated_and_the_missing_ones_are_reported(self):
        bench = Bench()
        bench.worker.start("here")
        peers = [Peer(endpoint=f"ipc://{n}", public_key="") for n in range(3)]
        bench.hear(Peers(generation=GENERATION, peers=tuple(peers)))
        bench.greeted_by(1)
        bench.clock.wait_ms(GREETING_INTERVAL_MS)
        bench.turn(2)
        assert [peer for peer, _, _ in bench.link.frames] == [1, 2, 1, 2]
        assert [report.senders for report in bench.said(GreetingsMissing)] == [(2,)]

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"laminar": "0.0.1"}, "and the driver 0.0.1"),
            ({"python": "3.99.1"}, "and the driver 3.99.1"),
            ({"pyarrow": "999.0.0"}, "and the driver 999.0.0"),
        ],
    )
    def test_it_restores_nothing_with_other_versions_than_the_drivers(self, changes, named):
        bench = Bench(versions=own_versions().model_copy(update=changes))
        with pytest.raises(ConfigurationError, match="host here has") as caught:
            bench.worker.start("here")
        assert caught.value.code is ErrorCode.VERSIONS_DIFFER
        assert named in str(caught.value)
        assert not bench.worker.wiring.tasks

    def test_peers_set_it_off(self, bench):
        assert bench.worker.phase is Phase.RUNNING
        assert bench.link.peers == ["ipc://me"]
        bench.turn(3)
        assert bench.worker.wiring.counts().rows_in > 0

    @pytest.mark.parametrize("message", [Finish, Cancel, Ping])
    def test_words_of_another_generation_mean_nothing(self, bench, message):
        bench.hear(message(generation=GENERATION - 1))
        assert bench.worker.phase is Phase.RUNNING


class TestSilence:
    def test_a_coordinator_that_says_nothing_is_dead(self, bench):
        bench.clock.wait_ms(COORDINATOR_SILENCE_MS)
        bench.turn()
        bench.clock.wait_ms(1)
        with pytest.raises(FencedError, match="no message from the coordinator for 15000 ms"):
            bench.turn()

    def test_any_word_keeps_it_alive(self, bench):
        for _ in range(5):
            bench.clock.wait_ms(COORDINATOR_SILENCE_MS - 1)
            bench.hear(Ping(generation=GENERATION))

    def test_a_long_restore_is_not_silence(self):
        bench = Bench()
        bench.worker.start("here")
        bench.clock.wait_ms(10 * COORDINATOR_SILENCE_MS)
        bench.worker.register(pid=1, host="here")
        bench.turn()


class TestCheckpoints:
    def test_one_acknowledgement_once_all_parts_of_all_vertices_are_durable(self, bench):
        bench.turn(4)
        bench.trigger(1)
        bench.turn(20)
        assert bench.said(SnapshotAck) == []
        bench.settle()
        (ack,) = bench.said(SnapshotAck)
        operators = [entry.operator_id for entry in ack.entries]
        assert sorted(operators) == sorted(bench.job.plan.operator_ids())
        assert [e.vertex_id for e in ack.alignment] == [
            v.vertex_id for v in bench.job.plan.vertices
        ]
        in_store = {segment.path for entry in ack.entries for segment in entry.segments}
        assert in_store <= {k.removeprefix("payments/") for k in bench.store.objects.list("")}

    def test_a_store_that_refuses_declines_it_and_the_next_one_carries_its_output(self):
        states = Fault("put_if_absent", Effect.FAIL, key="/state_", last=2)
        bench = Bench(None, states).start()
        bench.turn(30)
        bench.trigger(1)
        bench.settle()
        (decline,) = bench.said(SnapshotDecline)
        assert (decline.checkpoint_id, decline.cause) == (1, DeclineCause.FAILED)
        assert "cannot put_if_absent" in decline.reason
        bench.turn(30)
        bench.trigger(2)
        bench.settle()
        (ack,) = bench.said(SnapshotAck)
        offered = [part for entry in ack.entries for part in entry.committables]
        assert {part["checkpoint_id"] for part in offered} >= {1}

    def test_output_is_offered_until_its_commit_is_announced(self, bench):
        for checkpoint_id in (1, 2, 3):
            bench.turn(30)
            bench.trigger(checkpoint_id)
            bench.settle()
            if checkpoint_id == 2:
                bench.hear(Completed(generation=GENERATION, checkpoint_id=1))
        offered = [
            {part["checkpoint_id"] for entry in ack.entries for part in entry.committables}
            for ack in bench.said(SnapshotAck)
        ]
        assert offered[0] == {1}
        assert 1 in offered[1]
        assert 1 not in offered[2]

    def test_one_that_is_aborted_is_not_acknowledged_though_it_was_written(self, bench):
        bench.trigger(1)
        bench.turn(20)
        bench.background.run()
        bench.hear(Abort(generation=GENERATION, checkpoint_id=1))
        bench.settle()
        assert bench.said(SnapshotAck) == []
        assert bench.said(SnapshotDecline) == []

    def test_one_that_is_aborted_before_it_was_written_is_not_declined_a_second_time(self, bench):
        bench.turn(30)
        bench.trigger(1)
        bench.turn(20)
        bench.hear(Abort(generation=GENERATION, checkpoint_id=1))
        bench.settle()
        assert (bench.said(SnapshotAck), bench.said(SnapshotDecline)) == ([], [])
        assert not any("/state_" in key for key in bench.store.objects.list(""))

    def test_those_that_were_aborted_while_a_function_was_busy_are_not_begun(self, bench):
        bench.turn(30)
        missed = range(1, 51)
        bench.hear(*(message(n) for n in missed for message in (trigger_of, abort_of)))
        bench.turn(20)
        assert not bench.background.queue
        bench.trigger(51)
        bench.settle()
        assert [ack.checkpoint_id for ack in bench.said(SnapshotAck)] == [51]

    def test_one_that_is_aborted_again_leaves_no_more_work(self, bench):
        bench.turn(30)
        bench.trigger(1)
        bench.turn(20)
        bench.hear(abort_of(1))
        left = len(bench.background.queue)
        bench.hear(abort_of(1))
        assert len(bench.background.queue) == left

    def test_a_part_that_cannot_be_made_ends_the_worker(self, bench):
        def fail(*_: str) -> None:
            raise DataError(ErrorCode.UNREADABLE_FILE, "the staged file is gone")

        bench.turn(30)
        bench.job.ledgers["out"].observe = fail
        bench.trigger(1)
        with pytest.raises(DataError, match="the staged file is gone"):
            bench.settle()


class TestProgress:
    def test_the_first_rows_are_reported_at_once_then_at_intervals(self, bench):
        bench.turn(1)
        assert [p.flowing for p in bench.said(Progress)].count(True) == 1
        reports = len(bench.said(Progress))
        bench.turn(20)
        assert len(bench.said(Progress)) == reports
        bench.clock.wait_ms(200)
        bench.turn()
        assert len(bench.said(Progress)) == reports + 1

    def test_it_says_at_once_and_once_when_everything_is_done(self, bench):
        bench.turn(200)
        last = bench.said(Progress)[-1]
        assert (last.drained, last.rows_in, last.rows_late) == (True, 120, 0)
        assert [progress.drained for progress in bench.said(Progress)].count(True) == 1
        bench.clock.wait_ms(200)
        bench.turn()  # A report can be lost, so the next one says it again.
        assert [progress.drained for progress in bench.said(Progress)].count(True) == 2


class TestEnd:
    def test_after_finish_it_hands_over_what_its_sinks_collected(self):
        bench = Bench(collect_job(1)).start()
        bench.turn(100)
        bench.hear(Finish(generation=GENERATION))
        assert not bench.worker.working
        collected = list(bench.worker.collected())
        assert {sink for sink, _ in collected} == {"rows"}
        table = pa.Table.from_batches([batch for _, batch in collected])
        assert normal(table.to_pylist()) == normal(bench.job.expected["rows"])
        assert len(rows_of([table])) == 120

    def test_after_cancel_it_hands_over_nothing(self):
        bench = Bench(collect_job(1)).start()
        bench.turn(100)
        bench.hear(Cancel(generation=GENERATION))
        assert not bench.worker.working
        assert list(bench.worker.collected()) == []

    def test_run_works_until_it_is_told_to_end(self):
        bench = Bench(collect_job(1)).start()
        bench.link.wait = lambda _: bench.link.arrive(Finish(generation=GENERATION))
        assert sum(batch.num_rows for _, batch in bench.worker.run()) == 120

    def test_closing_lets_go_of_sources_and_sinks(self, bench):
        bench.worker.close()
        parts = [task.parts for task in bench.worker.wiring.tasks]
        assert all(part.source.reader.closed for part in parts if part.source is not None)
        assert all(part.sink.writer.closed for part in parts if part.sink is not None)

    @pytest.mark.parametrize(
        ("error", "code", "reason", "restart_helps"),
        [
            (DataError(ErrorCode.NULL_KEY, "no key"), "null-key", "no key", False),
            (ConfigurationError(ErrorCode.WRONG_SCHEMA, "no"), "wrong-schema", "no", False),
            (ProtocolError(ErrorCode.OUT_OF_ORDER, "3"), "out-of-order", "3", False),
            (LinkBrokenError(ErrorCode.LINK_BROKEN, "3"), "link-broken", "3", True),
            (CorruptCheckpointError(ErrorCode.DIGEST_DIFFERS, "x"), "digest-differs", "x", True),
            (FencedError(ErrorCode.FENCED, "silence"), "fenced", "silence", True),
            (ValueError("odd"), "worker-failed", "ValueError: odd", True),
        ],
    )
    def test_it_says_why_it_ends_and_whether_a_restart_helps(
        self, bench, error, code, reason, restart_helps
    ):
        bench.worker.failed(error)
        (failed,) = bench.said(WorkerFailed)
        assert (failed.code, failed.reason, failed.restart_helps) == (code, reason, restart_helps)
        assert failed.links == ()

    def test_connections_that_stayed_away_are_named_in_fields(self, bench):
        link = BrokenLink(sender=1, sender_host="b", receiver=0, receiver_host="a")
        made, parts = LinkBrokenError(ErrorCode.LINK_BROKEN, "silent", (link,)).__reduce__()
        bench.worker.failed(made(*parts))  # As Spark carries it.
        (failed,) = bench.said(WorkerFailed)
        assert (failed.reason, failed.links) == ("silent", (link,))


class TestUrgency:
    """A checkpoint that overtakes is served between the units of two tasks."""

    @staticmethod
    def turn(*, urgent: bool, message: Any) -> list[tuple[Phase, int]]:
        """Let ``message`` come while the first task works; return what the others find then."""
        bench = Bench().start()
        first, *others = bench.worker.wiring.tasks
        found: list[tuple[Phase, int]] = []

        def work_of_first() -> bool:
            bench.link.arrive(message)
            return True

        def work_of_another() -> bool:
            found.append((bench.worker.phase, first.protocol_state.gate.newest_id))
            return False

        if urgent:
            bench.hear(Announce(generation=GENERATION, checkpoint_id=7))
        first.work = work_of_first
        for task in others:
            task.work = work_of_another
        bench.turn()
        return found

    def test_a_checkpoint_that_overtakes_does_not_wait_for_the_other_tasks(self):
        assert set(self.turn(urgent=True, message=trigger_of(7))) == {(Phase.RUNNING, 7)}

    def test_any_other_message_does(self):
        assert set(self.turn(urgent=False, message=trigger_of(7))) == {(Phase.RUNNING, 0)}

    def test_who_is_to_end_does_no_further_unit(self):
        assert self.turn(urgent=True, message=Cancel(generation=GENERATION)) == []


class TestRest:
    """Tasks rest while what a checkpoint that overtakes has cut is written."""

    @pytest.fixture
    def units(self, bench):
        """The tasks whose turn came, from when all of them were cut."""
        units: list[int] = []
        bench.hear(trigger_of(7, overtakes=True))
        bench.turn(20)
        for number, task in enumerate(bench.worker.wiring.tasks):
            task.work = lambda number=number: bool(units.append(number))
        return units

    def test_no_task_works_until_the_part_is_written(self, bench, units):
        bench.turn(3)
        assert units == []
        assert 0 < bench.worker.wait_ms() <= REST_MS_MAX
        bench.background.run()
        bench.turn(2)
        assert bench.said(SnapshotAck)
        assert set(units) == set(range(len(bench.worker.wiring.tasks)))

    def test_they_go_on_if_the_store_is_slow(self, bench, units):
        bench.clock.wait_ms(REST_MS_MAX)
        bench.turn()
        assert set(units) == set(range(len(bench.worker.wiring.tasks)))
        assert not bench.said(SnapshotAck)

    def test_they_go_on_if_the_checkpoint_is_given_up(self, bench, units):
        bench.hear(abort_of(7))
        assert set(units) == set(range(len(bench.worker.wiring.tasks)))
