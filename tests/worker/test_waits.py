"""A worker says what a slow checkpoint waits for: bounded, and once a second at most."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from laminar_core.protocol.alignment_state import Aligning, Gate, Idle, State
from laminar_core.protocol.types import ChannelId, CheckpointBarrier, CheckpointId, CheckpointKind
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.worker.snapshots import WorkerPart
from laminar_core.worker.waits import CHANNELS_MAX, VERTICES_MAX, WaitClock, waits_of

IDLE = Idle(Gate(frozenset()))


def aligning(checkpoint_id: int, channels: int) -> State:
    every = frozenset(map(ChannelId, range(channels)))
    barrier = CheckpointBarrier(CheckpointId(checkpoint_id), CheckpointKind.PERIODIC, 0, None)
    return Aligning(Gate(every), barrier, every)


@dataclass
class Subtask:
    """The part of a task that is examined."""

    vertex_id: str
    protocol_state: State = IDLE
    parts: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        senders = {ChannelId(n): ("in", n) for n in range(100)}
        self.parts = SimpleNamespace(vertex_id=self.vertex_id, senders=senders)


def test_the_oldest_checkpoint_is_described() -> None:
    tasks = [Subtask("b", aligning(5, 1)), Subtask("a", aligning(4, 2)), Subtask("c")]
    found = waits_of(tasks, {})
    assert found is not None
    assert found.checkpoint_id == 4
    (vertex,) = found.vertices
    assert (vertex.vertex_id, vertex.waits_for, vertex.channel_count) == ("a", "barriers", 2)
    assert [(c.upstream, c.sender) for c in vertex.channels] == [("in", 0), ("in", 1)]


def test_what_is_cut_and_not_written_is_an_upload() -> None:
    part = WorkerPart.of(["a"])
    found = waits_of([Subtask("a")], {CheckpointId(3): part})
    assert found is not None
    assert [v.waits_for for v in found.vertices] == [WaitsFor.UPLOAD]
    part.missing.clear()
    assert waits_of([Subtask("a")], {CheckpointId(3): part}) is None


def test_a_report_is_as_large_as_its_bounds() -> None:
    found = waits_of([Subtask(f"v{n}", aligning(1, 100)) for n in range(50)], {})
    assert found is not None
    assert len(found.vertices) == VERTICES_MAX
    assert {len(v.channels) for v in found.vertices} == {CHANNELS_MAX}
    assert {v.channel_count for v in found.vertices} == {100}


def test_what_takes_long_is_reported_once_a_second() -> None:
    clock, first, second = WaitClock(), CheckpointId(1), CheckpointId(2)
    assert not clock.is_due(None, 0)
    assert [clock.is_due(first, t) for t in (100, 1_099, 1_100, 1_200, 2_100)] == [
        *(False, False, True, False, True)
    ]
    assert not clock.is_due(second, 2_200), "another one has just begun"
    assert not clock.is_due(None, 9_000)
