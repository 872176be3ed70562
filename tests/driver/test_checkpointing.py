"""The coordinator's decisions are carried out in the right order, also if one of them fails."""

import pytest

from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed, ThresholdTooLow
from laminar_core.link.messages import Abort, AlignmentTimeout, Announce, Completed
from laminar_core.protocol.coordinator_events import Declined
from laminar_core.protocol.types import CheckpointId, CheckpointKind, DeclineCause
from laminar_core.protocol.unaligned import SWITCHES_IN_A_ROW
from laminar_core.records.manifest import Heartbeat
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.testing.faulty_store import Effect, Fault
from laminar_core.testing.observed_store import StoreCall
from tests.driver.drivers import PLAN, Driver
from tests.store.stores import claim, open_job, trigger


class TestTrigger:
    def test_no_barrier_leaves_before_its_id_is_reserved(self):
        driver = Driver()
        driver.request()
        assert driver.host.sent == []
        driver.settle()
        assert driver.triggered() == [1]
        assert driver.store.attempts.read_trigger(CheckpointId(1)).generation == driver.generation

    def test_ids_go_on_above_the_highest_that_was_seen(self):
        driver = Driver(highest_id=41)
        driver.complete()
        assert driver.triggered() == [42]

    def test_an_id_of_another_generation_is_left_alone(self):
        driver = Driver()
        driver.store.attempts.record_trigger(trigger(1, generation=9))
        driver.request()
        driver.settle()
        assert driver.triggered() == [2]
        assert [each.checkpoint_id for each in driver.driver.under_way()] == [2]
        driver.acknowledge(2, 0, 1)
        driver.settle()
        assert driver.driver.pending_count == 0

    def test_an_id_that_cannot_be_reserved_costs_the_checkpoint(self):
        driver = Driver(Fault("put_if_absent", Effect.FAIL, key="trigger", last=2))
        answer = driver.request()
        driver.settle()
        assert driver.triggered() == []
        assert answer.result(0).outcome == "declined"

    def test_a_periodic_one_comes_when_it_is_due(self):
        driver = Driver(interval_ms=100)
        assert driver.driver.next_wakeup_ms() == 1_075
        driver.driver.tick()
        assert not driver.io.queue
        driver.host.time_ms = 1_075
        driver.driver.tick()
        driver.settle()
        assert driver.triggered() == []
        assert driver.driver.next_wakeup_ms() == 1_100
        driver.host.time_ms = 1_100
        driver.driver.tick()
        assert driver.triggered() == [1]

    def test_a_number_that_is_reserved_ahead_is_no_checkpoint_before_it_is_due(self):
        driver = Driver(interval_ms=100)
        driver.host.time_ms = 1_075
        driver.driver.tick()
        driver.settle()
        assert (driver.driver.pending_count, driver.driver.under_way()) == (0, [])
        driver.host.time_ms = 1_100
        driver.driver.tick()
        assert [each.age_ms for each in driver.driver.under_way()] == [0]

    def test_the_time_of_a_trigger_that_a_request_made_earlier_is_true(self):
        driver = Driver(interval_ms=100)
        driver.host.time_ms = 1_075
        driver.driver.tick()
        driver.settle()
        driver.host.time_ms = 1_080
        driver.request()
        driver.host.time_ms = 1_085
        driver.acknowledge(1, 0, 1)
        driver.settle()
        manifest = driver.store.manifests.read(CheckpointId(1))
        assert manifest.triggered_at_ms == manifest.completed_at_ms - 5
        assert (manifest.kind, manifest.duration_ms) == (CheckpointKind.PERIODIC, 5)

    @pytest.mark.parametrize(
        ("kind", "timeout_ms", "announced"),
        [
            (CheckpointKind.MANUAL, 0, [1]),
            (CheckpointKind.MANUAL, 50, []),
            (CheckpointKind.MANUAL, None, []),
            (CheckpointKind.SAVEPOINT, 0, []),
        ],
    )
    def test_one_whose_barriers_overtake_is_announced(self, kind, timeout_ms, announced):
        driver = Driver(alignment_timeout_ms=timeout_ms)
        driver.request(kind)
        assert driver.sent(Announce) == announced

    def test_a_budget_that_is_always_too_short_is_reported(self):
        driver = Driver(interval_ms=100, alignment_timeout_ms=50)
        for _ in range(SWITCHES_IN_A_ROW):
            driver.complete(CheckpointKind.MANUAL, mode="switched")
        for n in range(SWITCHES_IN_A_ROW):
            assert not [e for e in driver.host.told if isinstance(e, ThresholdTooLow)]
            driver.host.time_ms = 2_000 + n * 100
            driver.driver.tick()
            driver.settle()
            driver.acknowledge(driver.triggered()[-1], 0, 1, mode="switched")
            driver.settle()
        (told,) = [e for e in driver.host.told if isinstance(e, ThresholdTooLow)]
        assert (told.checkpoints, told.alignment_timeout_ms) == (SWITCHES_IN_A_ROW, 50)

    def test_workers_hear_once_that_the_alignment_budget_is_spent(self):
        driver = Driver(alignment_timeout_ms=50)
        driver.request()
        driver.settle()
        assert driver.driver.next_wakeup_ms() == 1_050
        driver.host.time_ms = 1_050
        driver.driver.tick()
        driver.driver.tick()
        assert driver.sent(AlignmentTimeout) == [1]


class TestCompletion:
    def test_manifest_then_commit_then_the_workers_hear_of_it(self):
        driver = Driver()
        driver.ledger.staged["1-0-0"] = []
        answer = driver.request()
        driver.settle()
        driver.acknowledge(1, 0)
        assert driver.store.manifests.ids() == []
        driver.acknowledge(1, 1, parts=())
        driver.settle(commit=False)
        assert driver.store.manifests.ids() == [1]
        assert (driver.sent(Completed), driver.store.attempts.committed_ids()) == ([], [])
        assert answer.result(0).outcome == "completed"
        driver.settle()
        assert (driver.sent(Completed), driver.store.attempts.committed_ids()) == ([1], [1])

    def test_the_manifest_has_the_parts_of_every_worker(self):
        driver = Driver()
        driver.ledger.staged["1-0-0"] = []
        driver.complete(parts=("1-0-0",))
        stored = driver.store.manifests.read(CheckpointId(1))
        assert {(e.operator_id, e.subtask_index) for e in stored.subtasks} == {
            (operator, index) for operator in PLAN.operator_ids() for index in (0, 1)
        }
        assert list(driver.ledger.visible) == ["1-0-0"]

    def test_each_names_the_one_before_as_its_parent(self):
        driver = Driver()
        for _ in range(3):
            driver.complete()
        parents = [driver.store.manifests.read(CheckpointId(n)) for n in (1, 2, 3)]
        assert [m.parent_checkpoint_id for m in parents] == [None, 1, 2]
        assert driver.driver.completed_count == 3
        assert [e.checkpoint_id for e in driver.host.told] == [1, 2, 3]

    def test_a_savepoint_commits_nothing(self):
        driver = Driver()
        driver.complete(CheckpointKind.SAVEPOINT)
        assert driver.store.manifests.ids() == [1]
        assert (driver.store.attempts.committed_ids(), driver.sent(Completed)) == ([], [])

    @pytest.mark.parametrize("kind", [CheckpointKind.STOP, CheckpointKind.FINAL])
    def test_the_last_one_ends_the_job_when_it_is_committed(self, kind):
        driver = Driver()
        driver.request(kind)
        driver.settle()
        driver.acknowledge(1, 0, 1)
        driver.settle(commit=False)
        assert driver.host.last_commits == []
        driver.settle()
        assert driver.host.last_commits == [kind]

    def test_a_commit_that_fails_does_not_hold_up_the_next_checkpoint(self):
        driver = Driver(Fault("put_if_absent", Effect.FAIL, key="commits/", last=2))
        driver.complete()
        driver.complete()
        assert driver.store.manifests.ids() == [1, 2]
        assert driver.sent(Completed) == []
        assert driver.driver.next_wakeup_ms() == 1_050
        driver.host.time_ms = 1_050
        driver.driver.tick()
        driver.settle()
        assert driver.sent(Completed) == [1, 2]


class TestLostCheckpoints:
    def test_a_decline_aborts_it_everywhere(self):
        driver = Driver()
        answer = driver.request()
        driver.settle()
        driver.acknowledge(1, 0)
        driver.driver.dispatch(
            Declined(CheckpointId(1), DeclineCause.FAILED, "worker 1: no space left")
        )
        driver.settle()
        assert driver.sent(Abort) == [1]
        assert answer.result(0).reason == "worker 1: no space left"
        assert driver.store.attempts.read_outcome(CheckpointId(1)).outcome == "declined"
        assert [type(e) for e in driver.host.told] == [CheckpointFailed]
        driver.acknowledge(1, 1)
        driver.settle()
        assert driver.store.manifests.ids() == []

    def test_one_that_cannot_be_published_is_declined_and_the_next_one_tried(self):
        driver = Driver(Fault("put_if_absent", Effect.FAIL, key="manifest", last=2))
        driver.complete()
        assert driver.sent(Abort) == [1]
        driver.complete()
        assert driver.store.manifests.ids() == [2]
        assert driver.store.manifests.read(CheckpointId(2)).parent_checkpoint_id is None

    def test_a_publication_whose_answer_is_lost_once_is_confirmed(self):
        driver = Driver(Fault("put_if_absent", Effect.LOSE_ANSWER, key="manifest"))
        driver.complete()
        assert [type(e) for e in driver.host.told] == [CheckpointCompleted]

    def test_one_that_takes_too_long_expires(self):
        driver = Driver(timeout_ms=500)
        driver.request()
        driver.settle()
        driver.host.time_ms += 500
        driver.driver.tick()
        assert driver.sent(Abort) == [1]
        assert driver.host.told[-1].outcome == "expired"

    def test_too_many_failures_end_the_generation(self):
        driver = Driver(tolerable_failures=1)
        for checkpoint_id in (1, 2):
            driver.request()
            driver.settle()
            driver.driver.dispatch(
                Declined(CheckpointId(checkpoint_id), DeclineCause.FAILED, "no space left")
            )
        assert driver.host.failures == [
            ("snapshot-failed", "2 checkpoints failed in a row, the last one: no space left")
        ]

    def test_the_end_of_the_generation_answers_everybody(self):
        driver = Driver()
        waiting = [driver.request(), driver.request(CheckpointKind.SAVEPOINT)]
        driver.settle()
        driver.driver.abort_all("the worker died")
        assert {answer.result(0).outcome for answer in waiting} == {"aborted"}
        assert {answer.result(0).reason for answer in waiting} == {"the worker died"}

    def test_a_history_that_cannot_be_written_costs_nothing_but_itself(self):
        driver = Driver(Fault("put_if_absent", Effect.FAIL, key="history", last=2))
        driver.complete()
        assert driver.store.manifests.ids() == [1]
        assert driver.host.failures == []


class TestFencing:
    def test_a_zombie_reserves_but_injects_and_publishes_nothing_that_counts(self):
        driver = Driver()
        driver.request()
        driver.settle()
        claim(driver.store)
        driver.acknowledge(1, 0, 1)
        driver.settle()
        assert len(driver.host.fences) == 1
        assert driver.store.manifests.ids() == []
        assert driver.sent(Completed) == []

    def test_a_zombie_that_published_before_it_was_fenced_does_not_commit(self):
        driver = Driver()
        driver.ledger.staged["1-0-0"] = []
        driver.request()
        driver.settle()
        driver.acknowledge(1, 0, 1, parts=("1-0-0",))
        driver.settle(commit=False)
        claim(driver.store)
        driver.settle()
        assert driver.ledger.visible == {}
        assert len(driver.host.fences) == 1

    def test_a_zombie_that_fell_asleep_while_it_published_claims_no_success(self):
        def take_over(call: StoreCall) -> None:
            if (call.moment, call.verb) == ("after", "put_if_absent") and "manifest" in call.key:
                claim(open_job(driver.objects))

        driver = Driver(observe=take_over)
        driver.complete()
        assert driver.store.manifests.ids() == [1]
        assert len(driver.host.fences) == 1
        assert (driver.host.told, driver.driver.completed_count) == ([], 0)
        assert driver.store.attempts.committed_ids() == []

    def test_the_heartbeat_notices_that_the_job_was_taken_over(self):
        driver = Driver()
        driver.driver.beat(Heartbeat(sequence=1, at_ms=1))
        driver.settle()
        assert driver.host.fences == []
        claim(driver.store)
        driver.driver.beat(Heartbeat(sequence=2, at_ms=2))
        driver.settle()
        assert len(driver.host.fences) == 1

    def test_a_missed_heartbeat_is_no_failure(self):
        driver = Driver(Fault("put", Effect.FAIL, key="heartbeat"))
        driver.driver.beat(Heartbeat(sequence=1, at_ms=1))
        driver.settle()
        assert (driver.host.fences, driver.host.failures) == ([], [])


def test_a_bug_in_the_background_ends_the_generation_instead_of_hiding() -> None:
    driver = Driver()
    driver.request()
    driver.settle()
    driver.acknowledge(1, 0, 1)
    driver.store.manifests.publish_if_whole = None
    driver.settle()
    assert driver.host.failures == [
        ("snapshot-failed", "checkpoint 1: TypeError(\"'NoneType' object is not callable\")")
    ]


def test_output_expires_from_its_acknowledgement_until_its_commit() -> None:
    driver = Driver()
    driver.ledger.staged["1-0-0"] = []
    driver.request()
    driver.settle()
    assert driver.driver.sink_numbers() == {"out": SinkNumbers()}
    driver.acknowledge(1, 0, parts=("1-0-0",), rows=50, expires_at_ms=61_000)
    assert expires_in_ms(driver) == 60_000, "one worker has offered its output"
    driver.host.time_ms += 10_000
    driver.acknowledge(1, 1)
    driver.settle(commit=False)
    assert expires_in_ms(driver) == 50_000, "the checkpoint is complete, and waits"
    driver.settle()
    assert driver.driver.sink_numbers() == {"out": SinkNumbers(publish_rows_per_s=50_000)}


def expires_in_ms(driver: Driver) -> int | None:
    return driver.driver.sink_numbers()["out"].transaction_expires_in_ms
