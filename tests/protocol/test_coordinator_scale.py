"""A checkpoint of 5,000 subtasks costs work that grows with them, not with their square.

Counted, not timed: subtasks copied from one state to the next, and effects that come out. How
long it takes is in ``benchmarks/micro.py``.
"""

from math import log2

import pytest

from laminar_core.protocol.coordinator import initial, step
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    AbortCheckpoint,
    Acknowledged,
    CheckpointRequested,
    CommitCheckpoint,
    Declined,
    DiscardParts,
    Effect,
    Event,
    IdReserved,
    Published,
    PublishManifest,
    SubtaskId,
)
from laminar_core.protocol.coordinator_state import CoordinatorState
from laminar_core.protocol.types import CheckpointId, CheckpointKind, DeclineCause

ONE = CheckpointId(1)


class Scale:
    """Runs the machine and counts what it copies."""

    def __init__(self, subtasks: list[SubtaskId]) -> None:
        config = CoordinatorConfig(interval_ms=None)
        self.state: CoordinatorState = initial(config, subtasks, CheckpointId(0), now_ms=0)
        self.effects: list[Effect] = []
        self.copied = 0
        for event in (CheckpointRequested(CheckpointKind.MANUAL, "r"), IdReserved(ONE)):
            self.on(event)

    def on(self, event: Event) -> None:
        before = self._parts()
        self.state, effects = step(self.state, event, 1)
        self.effects += effects
        self.copied += sum(len(part) for part in self._parts() if id(part) not in map(id, before))

    def _parts(self) -> tuple[frozenset[SubtaskId], ...]:
        return self.state.pending[0].acknowledged.parts if self.state.pending else ()


def counts(kind: type, effects: list[Effect]) -> int:
    return sum(isinstance(effect, kind) for effect in effects)


@pytest.mark.parametrize("workers", [1, 50, 5_000])
def test_five_thousand_subtasks_complete_with_linear_work(workers: int) -> None:
    """Goal: no copy of everything per acknowledgement. Method: count copies; each comes twice."""
    vertices = 5_000 // workers
    subtasks = [SubtaskId(f"v{v}", w) for w in range(workers) for v in range(vertices)]
    scale = Scale(subtasks)
    for worker in range(workers):
        mine = frozenset(subtasks[worker * vertices : (worker + 1) * vertices])
        scale.on(Acknowledged(ONE, mine))
        scale.on(Acknowledged(ONE, mine))
        done = worker == workers - 1
        assert counts(PublishManifest, scale.effects) == done, "not before the last one"
    scale.on(Published(ONE))

    assert counts(CommitCheckpoint, scale.effects) == 1
    assert len(scale.effects) == 6, "reserve, inject, publish, commit, record, answer"
    assert scale.copied <= 5_000 * (log2(workers) + 1)


def test_giving_up_five_thousand_subtasks_is_one_abort_and_one_discard_per_late_answer() -> None:
    subtasks = [SubtaskId("v", n) for n in range(5_000)]
    scale = Scale(subtasks)
    for subtask in subtasks[:2_500]:
        scale.on(Acknowledged(ONE, frozenset({subtask})))
    scale.on(Declined(ONE, DeclineCause.FAILED, "disk"))
    for subtask in subtasks[2_500:]:
        scale.on(Acknowledged(ONE, frozenset({subtask})))
    assert counts(AbortCheckpoint, scale.effects) == 1
    assert counts(DiscardParts, scale.effects) == 2_500
    assert scale.copied <= 2_500 * (log2(2_500) + 1)
