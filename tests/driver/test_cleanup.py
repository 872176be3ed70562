"""Files of incomplete checkpoints are deleted at the right time, and no other file ever is."""

import pytest

from laminar_core.driver.cleanup import SWEEP_MAX, Cleanup
from laminar_core.driver.events import CleanUpFailed
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from laminar_core.records.manifest import HistoryRecord
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.driver.hosts import Background, Host
from tests.records.manifests import rows
from tests.store.stores import claim, complete, open_job, write

ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)


class Bench:
    """1 is complete; 2 and 3 were given up when their parts were written."""

    def __init__(self, *faults: Fault) -> None:
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.generation = generation = claim(self.store)
        complete(self.store, 1, generation)
        write(self.store, 2, generation)
        write(self.store, 3, generation)
        self.host, self.executor, self.counts = Host(), Background(), []
        self.cleanup = Cleanup(self.store, generation, self.executor, self.host, self.counts.append)

    def settle(self) -> None:
        self.executor.run()
        self.host.run()

    def write_late(self, checkpoint_id: CheckpointId) -> None:
        """A worker's write that was under way when it heard of the abort."""
        self.store.parts.write_state(checkpoint_id, "window", 5, rows(5, 2))

    def end_generation(self) -> None:
        self.store.generations.end(self.generation, "failed", "killed")

    def parts(self) -> dict[int, int]:
        """Files of each checkpoint, without its records."""
        folders = {n: self.store.paths.parts(CheckpointId(n)) for n in (1, 2, 3)}
        return {n: len(self.store.objects.list(folder)) for n, folder in folders.items()}


def outcome(checkpoint_id: int, generation: int) -> HistoryRecord:
    return HistoryRecord(
        checkpoint_id=checkpoint_id,
        generation=generation,
        kind=CheckpointKind.PERIODIC,
        outcome="declined",
        reason="disk",
        triggered_at_ms=1,
        ended_at_ms=2,
        duration_ms=1,
    )


def test_in_another_store_that_is_in_the_place_of_this_one_nothing_is_deleted() -> None:
    """Its files have the same names, and may be of a checkpoint that is under way there."""
    bench = Bench()
    bench.cleanup.given_up(TWO)
    bench.host.confirm()
    bench.store.objects.put(bench.store.paths.claim(bench.generation), b"of a namesake")
    before = bench.parts()
    bench.settle()
    assert bench.parts() == before
    assert [type(event) for event in bench.host.told] == [CleanUpFailed]


def test_the_files_go_when_every_worker_has_confirmed_and_not_before() -> None:
    bench = Bench()
    bench.cleanup.given_up(TWO)
    bench.settle()
    assert bench.parts() == {1: 2, 2: 2, 3: 2}
    bench.host.confirm()
    bench.settle()
    assert bench.parts() == {1: 2, 2: 0, 3: 2}
    assert bench.store.attempts.read_trigger(TWO) is not None, "the id stays used"


def test_a_late_acknowledgement_deletes_again_unless_the_order_still_comes() -> None:
    bench = Bench()
    bench.cleanup.given_up(TWO)
    bench.cleanup.late(TWO)
    bench.settle()
    assert bench.parts()[2] == 2
    bench.host.confirm()
    bench.settle()
    bench.write_late(TWO)
    bench.cleanup.late(TWO)
    bench.settle()
    assert bench.parts()[2] == 0


def test_a_late_write_is_found_when_a_later_checkpoint_completes() -> None:
    bench = Bench()
    bench.cleanup.given_up(TWO)
    bench.host.confirm()
    bench.settle()
    bench.write_late(TWO)
    bench.cleanup.completed(ONE)
    bench.settle()
    assert bench.parts()[2] == 1, "only a later one shows that nothing is under way"
    bench.cleanup.completed(THREE)
    bench.settle()
    assert bench.parts()[2] == 0
    bench.cleanup.completed(CheckpointId(4))
    assert not bench.executor.queue, "once is enough"


def test_a_checkpoint_with_a_manifest_is_never_touched() -> None:
    bench = Bench()
    bench.cleanup.given_up(ONE)
    bench.cleanup.late(ONE)
    bench.host.confirm()
    bench.end_generation()
    bench.cleanup.sweep(THREE)
    bench.settle()
    assert bench.parts() == {1: 2, 2: 0, 3: 0}
    assert bench.store.verify(ONE).problem is None
    assert bench.host.told == []


def test_a_start_deletes_what_earlier_generations_left_and_nothing_newer() -> None:
    bench = Bench()
    bench.end_generation()
    bench.cleanup.sweep(TWO)
    assert bench.parts()[2] == 2, "in the background"
    bench.settle()
    assert bench.parts() == {1: 2, 2: 0, 3: 2}
    assert bench.counts == [], "and holds no checkpoint up"


def test_a_start_looks_at_the_newest_attempts_only() -> None:
    bench = Bench()
    newest = SWEEP_MAX + 3
    for n in range(4, newest + 1):
        write(bench.store, n, bench.generation)
    bench.end_generation()
    bench.cleanup.sweep(CheckpointId(newest))
    bench.settle()
    assert bench.parts() == {1: 2, 2: 2, 3: 2}
    assert bench.store.objects.list(bench.store.paths.parts(CheckpointId(4))) == []


def test_a_checkpoint_that_somebody_may_still_publish_is_left_alone() -> None:
    """Its driver may be asleep in the middle of writing the manifest."""
    bench = Bench()
    bench.cleanup.sweep(THREE)
    bench.settle()
    assert bench.parts() == {1: 2, 2: 2, 3: 2}


def test_one_whose_end_was_recorded_is_nobodys() -> None:
    bench = Bench()
    bench.store.attempts.record_outcome(outcome(2, bench.generation))
    bench.cleanup.sweep(THREE)
    bench.settle()
    assert bench.parts() == {1: 2, 2: 0, 3: 2}


def test_however_late_it_seems_one_of_a_driver_that_may_be_asleep_stays() -> None:
    """A clock that steps by a day must not make a manifest without files possible."""
    bench = Bench()
    bench.host.time_ms += 1_000 * 24 * 3_600_000
    bench.cleanup.sweep(THREE)
    bench.settle()
    assert bench.parts() == {1: 2, 2: 2, 3: 2}


def test_files_under_an_id_that_nobody_reserved_are_not_understood_and_stay() -> None:
    bench = Bench()
    bench.end_generation()
    bench.store.objects.delete(bench.store.paths.trigger(TWO))
    bench.cleanup.sweep(THREE)
    bench.settle()
    assert bench.parts() == {1: 2, 2: 2, 3: 0}


def test_a_first_start_has_nothing_to_look_for() -> None:
    bench = Bench()
    bench.cleanup.sweep(CheckpointId(0))
    assert not bench.executor.queue


def test_it_says_how_many_deletions_wait() -> None:
    bench = Bench()
    bench.cleanup.given_up(TWO)
    bench.cleanup.given_up(THREE)
    assert bench.counts == [], "what is not confirmed is not under way"
    bench.host.confirm()
    assert bench.counts == [1, 2]
    bench.settle()
    assert bench.counts == [1, 2, 1, 0]


@pytest.mark.parametrize("operation", ["list", "delete"])
def test_an_error_is_reported_and_the_next_look_goes_on(operation: str) -> None:
    bench = Bench(Fault(operation, Effect.FAIL, key="0000000002", last=1))
    bench.cleanup.given_up(TWO)
    bench.host.confirm()
    bench.settle()
    (told,) = bench.host.told
    assert isinstance(told, CleanUpFailed)
    assert told.checkpoint_id == 2
    assert bench.counts[-1] == 0, "it holds nothing up"
    bench.cleanup.completed(THREE)
    bench.settle()
    assert bench.parts()[2] == 0


def test_an_error_in_the_sweep_is_reported_too() -> None:
    bench = Bench(Fault("list", Effect.FAIL, last=1))
    bench.end_generation()
    bench.cleanup.sweep(THREE)
    bench.settle()
    assert [type(event) for event in bench.host.told] == [CleanUpFailed]


def test_a_bug_is_reported_and_does_not_end_the_job(monkeypatch) -> None:
    bench = Bench()
    monkeypatch.setattr(bench.store.parts, "discard", lambda _: 1 / 0)
    bench.cleanup.late(TWO)
    bench.settle()
    assert "ZeroDivisionError" in bench.host.told[0].reason
    assert bench.counts == [1, 0]
