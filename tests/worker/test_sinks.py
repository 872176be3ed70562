"""Committables survive checkpoints that do not, and go no further than their commit."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.operators.base import PendingSnapshot, Snapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.worker.sinks import CommittingSink

ROW = pa.record_batch({"value": [1]})


class NumberedFiles:
    """A writer that pre-commits one file per row that came since the last snapshot."""

    def __init__(self) -> None:
        self.staged: list[int] = []
        self.restored: list[Snapshot] = []
        self._next = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for _ in range(batch.num_rows):
            self.staged.append(self._next)
            self._next += 1

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        staged, self.staged = self.staged, []
        properties = {"checkpoint": int(checkpoint_id)}
        return lambda: Snapshot((), properties, tuple({"file": n} for n in staged))

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        self.restored = list(snapshots)

    def collected(self) -> Iterable[pa.RecordBatch]:
        return ()

    def close(self) -> None:
        self.staged = []


def files(snapshot: Snapshot) -> list[int]:
    return [int(committable["file"]) for committable in snapshot.committables]


def trace(script: str) -> str:
    """``w`` a row, ``s1`` a snapshot, which shows its files, ``c1`` its commit is announced."""
    sink, shown = CommittingSink(NumberedFiles()), []
    for word in script.split():
        if word == "w":
            sink.write(ROW)
        elif word[0] == "s":
            snapshot = sink.snapshot(CheckpointId(int(word[1:])))()
            shown.append("".join(str(n) for n in files(snapshot)) or "-")
        else:
            sink.committed(CheckpointId(int(word[1:])))
    return " ".join(shown)


@pytest.mark.parametrize(
    ("script", "files_per_snapshot"),
    [
        ("s1", "-"),
        ("w w s1 c1 w s2", "01 2"),
        ("w s1 w s2", "0 01"),
        ("w s1 w s2 c1 w s3", "0 01 12"),
        ("w s1 w s2 w s3 c3 s4", "0 01 012 -"),
        ("w s1 c1 c1 s2 c7 w s9", "0 - 1"),
        ("w s1 w s2 c2 w s3", "0 01 2"),
    ],
)
def test_trace(script: str, files_per_snapshot: str) -> None:
    assert trace(script) == files_per_snapshot


def test_a_commit_that_is_announced_during_a_later_snapshot_only_saves_work() -> None:
    """The commit of 1 comes between the two phases of 2: carrying it again would be harmless."""
    sink = CommittingSink(NumberedFiles())
    sink.write(ROW)
    sink.snapshot(CheckpointId(1))()
    sink.write(ROW)
    pending = sink.snapshot(CheckpointId(2))
    sink.committed(CheckpointId(1))
    assert files(pending()) == [1]


@given(st.lists(st.sampled_from(["w", "s", "commit", "decline"]), max_size=30))
def test_a_checkpoint_that_completes_makes_every_row_before_it_visible_once(steps) -> None:
    """Goal: exactly once, whichever checkpoints complete.

    Method: commits are idempotent, so what is visible is a set; after each commit it must be all
    rows written before that snapshot.
    """
    sink = CommittingSink(NumberedFiles())
    visible: set[int] = set()
    newest, rows, carried, rows_at_cut = 0, 0, [], 0
    for step in steps:
        if step == "w":
            sink.write(ROW)
            rows += 1
        elif step == "s":
            newest += 1
            carried, rows_at_cut = files(sink.snapshot(CheckpointId(newest))()), rows
            assert not visible & set(carried), "what is visible is not carried on"
        elif step == "commit" and newest:
            visible.update(carried)
            carried = []
            sink.committed(CheckpointId(newest))
            assert visible == set(range(rows_at_cut))


def test_rows_are_counted_over_the_life_of_the_job() -> None:
    before = CommittingSink(NumberedFiles())
    for _ in range(3):
        before.write(ROW)
    snapshot = before.snapshot(CheckpointId(1))()
    before.write(ROW)  # After the cut: it will be written again.
    after = CommittingSink(writer := NumberedFiles())
    after.restore([snapshot, snapshot])
    after.write(ROW)
    assert after.rows_written == 3 + 3 + 1
    assert writer.restored == [snapshot, snapshot]
    assert after.snapshot(CheckpointId(2))().properties == {"checkpoint": 2, "rows_written": 7}


def test_a_restored_sink_commits_nothing_a_second_time() -> None:
    before = CommittingSink(NumberedFiles())
    before.write(ROW)
    after = CommittingSink(NumberedFiles())
    after.restore([before.snapshot(CheckpointId(1))()])
    assert files(after.snapshot(CheckpointId(2))()) == []


def test_event_time_and_columns_are_recorded_with_the_rows_before_the_cut() -> None:
    sink = CommittingSink(NumberedFiles(), (("value", "int64"),))
    sink.write(ROW)
    sink.time.advance(5)
    pending = sink.snapshot(CheckpointId(1))
    sink.time.advance(9)
    recorded = pending().properties
    assert recorded["output_watermark_us"] == 5
    assert recorded["output_columns"] == [["value", "int64"]]
    after = CommittingSink(NumberedFiles())
    after.restore([pending()])
    assert after.snapshot(CheckpointId(2))().properties["output_watermark_us"] == 5
