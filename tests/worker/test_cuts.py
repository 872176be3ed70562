"""The parts of a task's cut, and which cuts are small."""

from laminar_core.operators.base import Snapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.worker.cuts import Cut, PendingPart


def test_what_continues_a_chain_is_no_small_cut():
    part = PendingPart("window", Snapshot, 0.0, merge=lambda *_: ())
    small = PendingPart("source", Snapshot, 0.0)
    assert Cut(CheckpointId(3), "v", (small,), incremental=True).is_small
    assert not Cut(CheckpointId(3), "v", (small, part), incremental=True).is_small
    assert not Cut(CheckpointId(3), "v", (small,)).is_small, "all state is written"
