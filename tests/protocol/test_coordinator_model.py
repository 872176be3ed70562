"""Whatever order answers come in, ids are unique, outcomes single, completions justified."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given, settings

from laminar_core.protocol.coordinator import abort_all, initial, step
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    Acknowledged,
    AnswerRequest,
    CheckpointRequested,
    CommitCheckpoint,
    Declined,
    Effect,
    Event,
    IdReserved,
    IdTaken,
    InjectBarrier,
    Outcome,
    Published,
    PublishManifest,
    RecordOutcome,
    ReserveId,
    StoreFailed,
    SubtaskId,
    Tick,
)
from laminar_core.protocol.types import CheckpointId, CheckpointKind, DeclineCause
from tests.sampling import drawn

SUBTASKS = [SubtaskId("v", i) for i in range(3)]
STRANGER = SubtaskId("v", 3)
"""Acknowledges as well, and nobody expects it."""
KINDS = [CheckpointKind.MANUAL, CheckpointKind.SAVEPOINT]


ENDINGS = {CheckpointKind.STOP, CheckpointKind.FINAL}


class World:
    """The coordinator's surroundings: keeps its orders, and the answers that are possible."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self.state = initial(config, SUBTASKS, CheckpointId(10), 0)
        self.now_ms = 0
        self.possible: list[list[Event]] = []
        self.asked: list[str] = []
        self.reserved: list[CheckpointId] = []
        self.injected: set[CheckpointId] = set()
        self.committed: list[CheckpointId] = []
        self.outcomes: Counter[CheckpointId] = Counter()
        self.answers: Counter[str] = Counter()
        self.acknowledged: Counter[CheckpointId] = Counter()
        self.stopped = False

    @property
    def ends(self) -> bool:
        """A checkpoint is under way, or waits, with which the job is to end."""
        return any(c.kind in ENDINGS for c in (*self.state.pending, *self.state.queue))

    def on(self, event: Event) -> None:
        if isinstance(event, Acknowledged) and STRANGER not in event.subtasks:
            self.acknowledged[event.checkpoint_id] += 1
        self.state, effects = step(self.state, event, self.now_ms)
        self.absorb(effects)

    def absorb(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case ReserveId(n, _, _):
                    self.reserved.append(n)
                    self.possible.append([IdReserved(n), IdTaken(n), StoreFailed(n, "x")])
                case InjectBarrier(barrier):
                    n = barrier.checkpoint_id
                    self.injected.add(n)
                    for s in SUBTASKS:
                        self.possible.append(
                            [Acknowledged(n, frozenset({s})), Declined(n, DeclineCause.FAILED, "x")]
                        )
                    self.possible.append([Acknowledged(n, frozenset({STRANGER}))])
                case PublishManifest(n):
                    assert self.acknowledged[n] == len(SUBTASKS), "I2"
                    self.possible.append([Published(n), StoreFailed(n, "x")])
                case CommitCheckpoint(n, kind):
                    self.committed.append(n)
                    self.stopped = self.stopped or kind in ENDINGS
                case RecordOutcome(n, _, _, _, _, _):
                    self.outcomes[n] += 1
                case AnswerRequest(request_id, _, _, _):
                    self.answers[request_id] += 1
                case _:
                    pass


def draw_event(data, world: World) -> Event:
    """Mostly the good answer to something open; else a request or the passing of time."""
    if world.possible and data.draw(st.integers(0, 4)):
        choices = world.possible.pop(data.draw(st.integers(0, len(world.possible) - 1)))
        return choices[0] if data.draw(st.integers(0, 7)) else data.draw(st.sampled_from(choices))
    if data.draw(st.booleans()):
        world.asked.append(f"r{len(world.asked)}")
        kind = data.draw(st.sampled_from(KINDS))
        once = kind is CheckpointKind.STOP and data.draw(st.booleans())
        return CheckpointRequested(kind, world.asked[-1], once=once)
    return Tick()


@settings(max_examples=drawn(500), deadline=None)
@given(st.data(), st.integers(1, 3))
def test_invariants_hold_under_any_interleaving(data, max_concurrent) -> None:
    """Goal: I1 to I4. Method: hypothesis answers, delays, repeats or fails every effect."""
    config = CoordinatorConfig(interval_ms=50, timeout_ms=200, max_concurrent=max_concurrent)
    world = World(config)
    for _ in range(data.draw(st.integers(0, 60))):
        world.now_ms += data.draw(st.sampled_from([0, 1, 5, 30, 120]))
        world.on(draw_event(data, world))
        assert len(world.state.pending) <= max_concurrent, "I4"
        assert world.state.ending or not world.ends, "what is to end the job is under way"
        assert world.ends or world.stopped or not world.state.ending, "the job goes on"
    world.state, effects = abort_all(world.state, "over", world.now_ms)
    world.absorb(effects)

    assert world.reserved == sorted(set(world.reserved)), "I1"
    assert world.reserved[:1] in ([], [11]), "I1: above every id ever seen"
    assert world.committed == sorted(set(world.committed)), "commits come in order"
    assert all(count == 1 for count in world.outcomes.values()), "I3"
    assert world.injected <= set(world.outcomes), "I3: whatever was injected has an end"
    assert world.answers == Counter(world.asked), "I3: every request is answered once"


def test_outcomes_are_the_documented_five() -> None:
    assert [o.value for o in Outcome] == ["completed", "declined", "expired", "subsumed", "aborted"]
