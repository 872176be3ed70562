"""The parts of a task's cut, and which cuts are small."""

from laminar_core.operators.base import Snapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.worker.cuts import Cut, PendingPart


def test_what_continues_a_chain_is_no_small_cut():
    part = PendingPart("window", Snapshot, 0.0, merge=lambda *_: ())
    small = PendingPart("source", Snapshot, 0.0)
    assert Cut(CheckpointId(3), "v", (small,), only_changes=True).can_be_written_aside
    assert not Cut(CheckpointId(3), "v", (small, part), only_changes=True).can_be_written_aside
    assert not Cut(CheckpointId(3), "v", (small,)).can_be_written_aside, "all state is written"
