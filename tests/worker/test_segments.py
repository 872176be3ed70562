"""Chains of changes: complete whatever fails, and merged beside the checkpoints."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import pyarrow as pa
import pytest

from laminar_core.errors import CheckpointDeclined, ErrorCode, LaminarError, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import Snapshot, StateTable, one_table
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.segment import SegmentRef
from laminar_core.state import segment_chain as chain_module
from laminar_core.state.segment_chain import plan_compaction
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.worker import segments as segments_module
from laminar_core.worker.segments import CHAIN_FACTOR_MAX, NotMadeError, SegmentWriter
from tests.driver.hosts import Background
from tests.store.stores import open_job

OPERATOR = "totals"


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def merge(name: str, tables: Iterable[pa.Table], finished_us: int | None) -> Iterable[pa.Table]:
    """Keep what is above the mark; one table."""
    del name
    together = pa.concat_tables(tables).column("n").to_pylist()
    yield rows(*sorted(n for n in together if finished_us is None or n > finished_us))


class Writing:
    """A writer, whose merging runs when the test says so."""

    def __init__(self, *faults: Fault, segments_max: int = 3) -> None:
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.compactions = Background()
        options = StateOptions(segments_max=segments_max)
        self.writer = SegmentWriter(
            self.store, Generation(4), 1, options, self.compactions, {OPERATOR}
        )

    def change(self, *numbers: int, finished_us: int | None = None) -> tuple[SegmentRef, ...]:
        tables = [rows(*numbers)] if numbers else []
        expired_us = {} if finished_us is None else {"": finished_us}
        self.writer.add_changes(OPERATOR, Snapshot(one_table(tables), expired_us=expired_us))
        return self.writer.write_changes(OPERATOR, expired_us, merge)

    def read(self, segments: Iterable[SegmentRef]) -> list[int]:
        return [n for s in segments for n in self.store.parts.read_state(s).column("n").to_pylist()]


def test_a_checkpoint_of_changes_writes_them_and_names_what_there_was() -> None:
    writing = Writing()
    first = writing.change(1, 2)
    second = writing.change(3)
    assert second[:1] == first
    assert writing.read(second) == [1, 2, 3]
    assert [s.path for s in second] == [
        "shared/totals/0000000004-1-00000000.seg",
        "shared/totals/0000000004-1-00000001.seg",
    ]


def test_nothing_new_writes_nothing() -> None:
    writing = Writing()
    first = writing.change(1)
    before = writing.store.objects.list("")
    assert writing.change() == first
    assert writing.store.objects.list("") == before


def test_bytes_are_counted_once() -> None:
    writing = Writing()
    (first,) = writing.change(1)
    assert writing.writer.take_written_bytes(OPERATOR) == first.size_bytes
    (_, second) = writing.change(2, 3)
    assert writing.writer.take_written_bytes(OPERATOR) == second.size_bytes
    assert writing.writer.take_written_bytes(OPERATOR) == 0


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.TEAR])
def test_what_the_store_did_not_take_goes_with_the_next_changes(effect) -> None:
    writing = Writing(Fault("put_if_absent", effect, "shared", first=2, last=3))
    writing.change(1)
    with pytest.raises((StorageUnavailable, CheckpointDeclined)):
        writing.change(2)
    assert sorted(writing.read(writing.change(3))) == [1, 2, 3]


def test_a_restored_chain_goes_on_and_nothing_of_it_is_written_again() -> None:
    before = Writing()
    chain = before.change(1)
    writing = Writing()
    writing.store = before.store
    writing.writer = SegmentWriter(
        before.store, Generation(5), 1, StateOptions(), writing.compactions, {OPERATOR}
    )
    writing.writer.adopt(OPERATOR, chain)
    after = writing.change(2)
    assert after[:1] == chain
    assert after[1].path == "shared/totals/0000000005-1-00000000.seg"
    assert writing.writer.take_written_bytes(OPERATOR) == after[1].size_bytes


def test_finished_segments_leave_the_chain() -> None:
    writing = Writing()
    chain = tuple(
        s.model_copy(update={"newest_window_us": 10 * n})
        for n, s in enumerate(writing.change(1) + writing.change(2)[1:])
    )
    writing.writer.adopt(OPERATOR, chain)
    assert writing.change(finished_us=0) == chain[1:]


def test_a_long_chain_is_merged_in_the_background_and_the_next_checkpoint_has_it() -> None:
    writing = Writing()
    for n in range(4):
        chain = writing.change(n)
    assert len(chain) == 4, "the checkpoint does not wait for the merging"
    writing.compactions.run()
    after = writing.change(9)
    assert len(after) < 5
    assert sorted(writing.read(after)) == [0, 1, 2, 3, 9]
    assert not writing.compactions.queue, "one at a time, and only if needed"


def test_changes_that_come_while_a_chain_is_merged_stay_behind_it() -> None:
    writing = Writing()
    for n in range(4):
        writing.change(n)
    writing.change(7)
    writing.compactions.run()
    assert sorted(writing.read(writing.change(8))) == [0, 1, 2, 3, 7, 8]


def test_merging_counts_as_written() -> None:
    writing = Writing()
    for n in range(4):
        writing.change(n)
    writing.writer.take_written_bytes(OPERATOR)
    writing.compactions.run()
    after = writing.change()
    assert writing.writer.take_written_bytes(OPERATOR) == after[0].size_bytes


def test_merging_that_fails_costs_nothing_and_is_tried_again() -> None:
    """Four segments, then two attempts (each create is tried twice) at the merged one."""
    writing = Writing(Fault("put_if_absent", Effect.FAIL, "shared", first=5, last=6))
    for n in range(4):
        writing.change(n)
    writing.compactions.run()
    assert sorted(writing.read(writing.change())) == [0, 1, 2, 3]
    writing.compactions.run()
    assert len(writing.change()) < 4


def test_a_damaged_segment_is_not_merged_away() -> None:
    writing = Writing()
    for n in range(4):
        chain = writing.change(n)
    writing.store.objects.put(f"payments/{chain[2].path}", b"rot")
    writing.compactions.run()
    assert writing.change() == chain, "a restore finds the damage"


def test_merging_that_never_keeps_up_costs_checkpoints_and_says_so() -> None:
    writing = Writing()
    for n in range(3 * CHAIN_FACTOR_MAX):
        writing.change(n)
    with pytest.raises(CheckpointDeclined, match="checkpoint less often") as caught:
        writing.change(99)
    assert caught.value.code is ErrorCode.SNAPSHOT_FAILED
    writing.compactions.run()
    assert sorted(writing.read(writing.change())) == [*range(3 * CHAIN_FACTOR_MAX), 99]


def test_merging_that_cannot_work_is_named_when_the_chain_is_too_long() -> None:
    writing = Writing()
    for n in range(3 * CHAIN_FACTOR_MAX):
        chain = writing.change(n)
    writing.store.objects.put(f"payments/{chain[0].path}", b"rot")
    writing.compactions.run()
    with pytest.raises(CheckpointDeclined, match="because that failed"):
        writing.change(99)


def test_a_merge_that_failed_is_tried_again_although_the_chain_is_too_long() -> None:
    """Otherwise no checkpoint ever completes again: only a merge makes the chain shorter."""
    writing = Writing(Fault("put_if_absent", Effect.FAIL, "shared", first=13, last=14))
    numbers = range(3 * CHAIN_FACTOR_MAX)
    for n in numbers:
        writing.change(n)
    writing.compactions.run()  # It fails.
    with pytest.raises(CheckpointDeclined, match="because that failed"):
        writing.change(98)
    writing.compactions.run()
    after = writing.change(99)
    assert len(after) <= 3
    assert sorted(writing.read(after)) == [*numbers, 98, 99]


def test_full_snapshots_belong_to_their_checkpoint_alone() -> None:
    writing = Writing()
    written = writing.writer.write_all(
        CheckpointId(3), OPERATOR, one_table([rows(1), rows(), rows(2)])
    )
    assert [s.path for s in written] == [
        "checkpoints/0000000003/operators/totals/state_1.seg",
        "checkpoints/0000000003/operators/totals/state_1_1.seg",
    ]
    assert plan_compaction([s.size_bytes for s in written], 3) is None


# --- tables that are made one at a time ---------------------------------------------------------


def test_tables_are_made_one_at_a_time_as_they_are_written() -> None:
    writing, made = Writing(), []

    def tables() -> Iterable[pa.Table]:
        for n in range(3):
            made.append(len(shared_files(writing)))
            yield rows(n)

    writing.writer.add_changes(OPERATOR, Snapshot.of(tables()))
    chain = writing.writer.write_changes(OPERATOR, {}, merge)
    assert made == [0, 1, 2]
    assert writing.read(chain) == [0, 1, 2]


def shared_files(writing: Writing) -> list[str]:
    return [key for key in writing.store.objects.list("") if "/shared/" in key]


def test_what_was_not_made_when_the_store_refused_is_made_later() -> None:
    writing = Writing(Fault("put_if_absent", Effect.FAIL, "shared", first=2, last=3))
    writing.writer.add_changes(OPERATOR, Snapshot.of(rows(n) for n in range(4)))
    with pytest.raises(StorageUnavailable):
        writing.writer.write_changes(OPERATOR, {}, merge)
    assert sorted(writing.read(writing.change(9))) == [0, 1, 2, 3, 9]


@pytest.mark.parametrize("act", ["changes", "all"])
def test_tables_that_cannot_be_made_are_not_taken_for_a_store_that_refuses(act: str) -> None:
    writing = Writing()

    def tables() -> Iterable[pa.Table]:
        yield rows(1)
        raise StorageUnavailable(ErrorCode.WORKING_STATE, "the disk is gone")

    def write() -> None:
        if act == "all":
            writing.writer.write_all(CheckpointId(1), OPERATOR, one_table(tables()))
        else:
            writing.writer.add_changes(OPERATOR, Snapshot.of(tables()))
            writing.writer.write_changes(OPERATOR, {}, merge)

    with pytest.raises(NotMadeError) as caught:
        write()
    assert isinstance(caught.value.__cause__, StorageUnavailable)


def keyed(*numbers: int) -> pa.Table:
    """One row per number, of as many key groups."""
    return rows(*numbers).add_column(0, "key_group", pa.array(numbers, pa.int32()))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few rows are much."""
    monkeypatch.setattr(segments_module, "MERGED_BYTES_MAX", 60)
    monkeypatch.setattr(chain_module, "MERGED_BYTES_MAX", 1_000)
    monkeypatch.setattr(chain_module, "RUN_SEGMENT_BYTES_MIN", 1)


@pytest.mark.usefixtures("tiny")
def test_a_large_table_is_cut_at_key_groups_and_counts_as_one_run() -> None:
    writing = Writing()
    table = keyed(*sorted([*range(20), *range(5, 15)]))
    writing.writer.add_changes(OPERATOR, Snapshot.of([table]))
    chain = writing.writer.write_changes(OPERATOR, {}, merge)
    assert len(chain) > 2
    owned = [segment.key_groups for segment in chain]
    assert owned == sorted(owned)
    assert all(left[1] <= right[0] for left, right in pairwise(owned))
    assert sum(segment.row_count for segment in chain) == 30
    assert not writing.compactions.queue, "there is nothing to merge in one run"


@pytest.mark.usefixtures("tiny")
def test_runs_are_merged_range_by_range_and_each_segment_is_read_once() -> None:
    """Goal: what is merged may be larger than memory; a range of it is not."""
    writing, merged_rows = Writing(segments_max=2), []

    def merge_keyed(
        name: str, tables: Iterable[pa.Table], finished_us: int | None
    ) -> Iterable[pa.Table]:
        del name, finished_us
        numbers = pa.concat_tables(tables).column("n").to_pylist()
        merged_rows.append(len(numbers))
        yield keyed(*sorted(set(numbers)))

    def change(*numbers: int) -> tuple[SegmentRef, ...]:
        writing.writer.add_changes(OPERATOR, Snapshot.of([keyed(*numbers)]))
        return writing.writer.write_changes(OPERATOR, {}, merge_keyed)

    for _ in range(3):
        change(*range(40))
    reads = []
    read_state = writing.store.parts.read_state
    writing.store.parts.read_state = lambda ref: reads.append(ref.path) or read_state(ref)
    writing.compactions.run()
    writing.store.parts.read_state = read_state
    assert len(reads) == len(set(reads)) > 6
    assert len(merged_rows) > 6
    assert max(merged_rows) < 40
    assert sum(merged_rows) == 3 * 40
    assert sorted(writing.read(change(99))) == [*range(40), 99]


# --- several tables -----------------------------------------------------------------------------


class Tables(Writing):
    """Changes of an operator with tables of its own names."""

    def __init__(self, *faults: Fault, segments_max: int = 3) -> None:
        super().__init__(*faults, segments_max=segments_max)
        self.merged: list[str] = []

    def write(self, **numbers: tuple[int, ...]) -> tuple[SegmentRef, ...]:
        self.add(**numbers)
        return self.writer.write_changes(OPERATOR, {}, self.merge)

    def add(self, expired_us: Mapping[str, int] | None = None, **numbers: tuple[int, ...]) -> None:
        tables = [StateTable(name, rows(*of)) for name, of in numbers.items()]
        self.writer.add_changes(OPERATOR, Snapshot(tables, expired_us=expired_us or {}))

    def merge(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        self.merged.append(name)
        return merge(name, tables, expired_us)


def places(chain: Iterable[SegmentRef]) -> list[str]:
    return [segment.table for segment in chain]


def test_each_table_has_a_chain_and_they_follow_one_another() -> None:
    writing = Tables()
    writing.write(right=(1,), left=(2, 3))
    chain = writing.write(left=(4,))
    assert places(chain) == ["left", "left", "right"]
    assert writing.read(chain) == [2, 3, 4, 1]
    assert writing.writer.take_written_bytes(OPERATOR) == sum(s.size_bytes for s in chain)


def test_only_the_long_chain_is_merged() -> None:
    writing = Tables()
    writing.write(right=(1,))
    for n in range(4):
        writing.write(left=(n,))
    writing.compactions.run()
    chain = writing.write(right=(2,))
    assert writing.merged == ["left"]
    assert places(chain) == ["left", "right", "right"]
    assert sorted(writing.read(chain)) == [0, 1, 1, 2, 2, 3]


def test_a_table_that_expires_drops_its_own_segments_only() -> None:
    writing = Tables()
    chain = tuple(
        segment.model_copy(update={"newest_window_us": 10})
        for segment in writing.write(right=(1,), left=(2,))
    )
    writing.writer.adopt(OPERATOR, chain)
    writing.add({"left": 10})
    assert places(writing.writer.write_changes(OPERATOR, {"left": 10}, merge)) == ["right"]


def test_changes_that_could_not_be_written_are_merged_table_by_table() -> None:
    writing = Tables(Fault("put_if_absent", Effect.FAIL, "shared", first=1, last=2))
    with pytest.raises(LaminarError):
        writing.write(left=(1,), right=(2,))
    chain = writing.write(right=(4,), left=(3,))
    assert writing.merged == ["left", "right"]
    assert [(s.table, writing.read([s])) for s in chain] == [("left", [1, 3]), ("right", [2, 4])]


def test_everything_anew_is_of_all_tables() -> None:
    writing = Tables()
    writing.write(left=(1,), right=(2,))
    snapshot = Snapshot([StateTable("left", rows(5))])
    writing.writer.add_changes(OPERATOR, snapshot, renews=True)
    chain = writing.writer.write_changes(OPERATOR, {}, merge)
    assert (places(chain), writing.read(chain)) == (["left"], [5])


def test_one_chain_that_is_too_long_does_not_keep_another_from_being_merged() -> None:
    writing = Tables()
    for n in range(3 * CHAIN_FACTOR_MAX):
        writing.write(left=(n,), right=(n,) if n < 3 else ())
    with pytest.raises(CheckpointDeclined, match="table left of totals is in 13 parts"):
        writing.write(left=(98,), right=(3,))
    writing.compactions.run()
    assert set(writing.merged) >= {"left", "right"}
