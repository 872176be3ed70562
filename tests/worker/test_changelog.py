"""Chains go on after a restore, and changes are uploaded ahead, if the mode says so."""

from collections.abc import Iterable

import pyarrow as pa
import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import PendingSnapshot, Snapshot
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.segment import SegmentRef
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.worker.changelog import Changelog
from laminar_core.worker.cuts import Cut, PendingPart
from laminar_core.worker.segments import SegmentWriter
from laminar_core.worker.snapshots import NotFinished, SnapshotWriter, Written
from tests.driver.hosts import Background, threads_of
from tests.store.stores import open_job

INTERVAL_MS = 100
TOTALS = "totals"


class Counter:
    """An operator that tells what changed: the numbers that came since it was asked last."""

    def __init__(self) -> None:
        self.fresh: list[int] = []
        self.asked: list[CheckpointId] = []
        self.problem: Exception | None = None

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        self.asked.append(checkpoint_id)
        taken, self.fresh = self.fresh, []

        def finish() -> Snapshot:
            if self.problem is not None:
                raise self.problem
            return Snapshot.of([pa.table({"n": pa.array(taken, pa.int64())})] if taken else [])

        return finish

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        del name, expired_us
        yield pa.concat_tables(tables)


class Plain:
    """An operator that cannot."""

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        raise AssertionError(checkpoint_id)


class FakeTask:
    """The part of a task that a changelog reads."""

    def __init__(self, **operators: object) -> None:
        self.midway = False
        self.parts = self
        self.operators = list(operators.items())


class FakeRestored:
    """Chains by operator."""

    def __init__(self, **chains: tuple[SegmentRef, ...]) -> None:
        self.chains = chains

    def own_segments(self, operator_id: str) -> tuple[SegmentRef, ...] | None:
        return self.chains.get(operator_id)


class Worker:
    """A changelog, the operator that it follows, and a background that runs on demand."""

    def __init__(self, mode: str, *faults: Fault, generation: int = 3) -> None:
        self.clock, self.background, self.totals = ManualClock(), Background(), Counter()
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        options = StateOptions(mode, changelog_interval_ms=INTERVAL_MS)
        segments = SegmentWriter(
            self.store, Generation(generation), 0, options, self.background, {TOTALS}
        )
        self.writer = SnapshotWriter(
            segments, threads_of(self.background), self.clock, lambda: None
        )
        self.changelog = Changelog(self.writer, options, self.clock)

    def follow(self, **chains: tuple[SegmentRef, ...]) -> None:
        self.task = FakeTask(plain=Plain(), totals=self.totals)
        self.changelog.follow([self.task], FakeRestored(**chains))

    def turn(self, later_ms: float = INTERVAL_MS) -> list[str]:
        """One turn of the loop; returns the shared files there are then."""
        self.clock.wait_ms(later_ms)
        self.changelog.turn()
        self.background.run()
        return self.shared()

    def shared(self) -> list[str]:
        return [key for key in self.store.objects.list("") if "/shared/" in key]

    def checkpoint(self) -> tuple[SegmentRef, ...]:
        pending = self.totals.snapshot_changes(CheckpointId(7))
        part = PendingPart(TOTALS, pending, 0.0, self.totals.merge_tables)
        self.writer.submit(Cut(CheckpointId(7), "v", (part,)))
        self.background.run()
        (written,) = self.writer.results()
        assert isinstance(written, Written)
        return written.entries[0].segments

    def read(self, segments: Iterable[SegmentRef]) -> list[int]:
        return [n for s in segments for n in self.store.parts.read_state(s).column("n").to_pylist()]


def a_chain() -> tuple[Worker, tuple[SegmentRef, ...]]:
    before = Worker("incremental", generation=2)
    before.totals.fresh = [1, 2]
    return before, before.checkpoint()


@pytest.mark.parametrize("mode", ["incremental", "changelog"])
def test_a_restored_chain_goes_on_and_what_it_holds_has_not_changed(mode: str) -> None:
    before, chain = a_chain()
    worker = Worker(mode)
    worker.store = worker.writer.segments.store = before.store
    worker.totals.fresh = [1, 2]  # As an operator has it after ``restore``.
    worker.follow(totals=chain)
    worker.totals.fresh = [3]
    segments = worker.checkpoint()
    assert segments[: len(chain)] == chain
    assert worker.read(segments) == [1, 2, 3]


@pytest.mark.parametrize("mode", ["incremental", "changelog"])
def test_a_chain_that_is_not_its_own_is_written_anew(mode: str) -> None:
    """After a change of workers: everything that was restored counts as changed."""
    worker = Worker(mode)
    worker.totals.fresh = [1, 2]
    worker.follow()
    assert worker.totals.asked == []
    assert worker.read(worker.checkpoint()) == [1, 2]


def test_full_snapshots_have_no_chains() -> None:
    _, chain = a_chain()
    worker = Worker("full")
    worker.totals.fresh = [1, 2]
    worker.follow(totals=chain)
    assert worker.turn() == []
    assert worker.totals.asked == [], "nobody takes its changes away"


def test_changes_are_uploaded_when_it_is_time_and_a_checkpoint_points_to_them() -> None:
    worker = Worker("changelog")
    worker.follow()
    worker.totals.fresh = [1]
    assert worker.turn(INTERVAL_MS - 1) == []
    assert len(worker.turn(1)) == 1
    assert len(worker.turn(1)) == 1, "the next one comes an interval later"
    worker.totals.fresh = [2]
    uploaded = worker.turn()
    assert len(uploaded) == 2
    segments = worker.checkpoint()
    assert worker.shared() == uploaded, "nothing was left to write"
    assert worker.read(segments) == [1, 2]


def test_nothing_new_is_not_uploaded() -> None:
    worker = Worker("changelog")
    worker.follow()
    assert worker.turn() == []


def test_without_a_changelog_nothing_is_uploaded_ahead() -> None:
    worker = Worker("incremental")
    worker.follow()
    worker.totals.fresh = [1]
    assert worker.turn() == worker.turn() == []
    assert worker.read(worker.checkpoint()) == [1]


def test_what_the_store_did_not_take_is_in_the_next_checkpoint() -> None:
    worker = Worker("changelog", Fault("put_if_absent", Effect.FAIL, "shared", first=1, last=2))
    worker.follow()
    worker.totals.fresh = [1]
    assert worker.turn() == []
    worker.totals.fresh = [2]
    assert sorted(worker.read(worker.checkpoint())) == [1, 2]


def test_changes_that_cannot_be_made_end_the_generation() -> None:
    """They exist nowhere else: the operator has forgotten that they are new."""
    worker = Worker("changelog")
    worker.follow()
    worker.totals.fresh, worker.totals.problem = [1], ArithmeticError("too large")
    worker.turn()
    assert worker.writer.results() == [NotFinished(worker.totals.problem)]


def test_changes_are_not_taken_in_the_middle_of_a_batch() -> None:
    worker = Worker("changelog")
    worker.follow()
    worker.task.midway, worker.totals.fresh = True, [1]
    assert worker.turn() == []
    worker.task.midway = False
    assert len(worker.turn()) == 1
    assert worker.read(worker.checkpoint()) == [1]
