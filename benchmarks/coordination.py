"""CPU time of the coordinator for a checkpoint: of 5,000 subtasks, and of up to 1,000 workers.

With *w* workers an exchange has *w*² channels, and the acknowledgements have an event time for each
of them.
"""

import statistics
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from time import process_time
from typing import ParamSpec, TypeVar

from benchmarks.result import Result
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.driver.checkpointing import Background, CoordinatorParts
from laminar_core.driver.coordination import Coordinator
from laminar_core.driver.listening import NOBODY
from laminar_core.driver.publication import JobIdentity
from laminar_core.host.clock import ManualClock
from laminar_core.link.messages import (
    GreetingsMissing,
    Register,
    SnapshotAck,
    ToCoordinator,
    Trigger,
    decode_to_worker,
    encode,
)
from laminar_core.link.versions import own_versions
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator import initial, step
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    Acknowledged,
    CheckpointRequested,
    IdReserved,
    Published,
    SubtaskId,
)
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.channel_entries import AlignmentEntry, ChannelEntry
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.store.owner import this_process

SUBTASKS = 5_000
WORKERS = (16, 64, 256, 1_000)
TARGET_S = 1.0
_TIME_US = 1_700_000_000_000_000
REPEATS = 5

P = ParamSpec("P")
T = TypeVar("T")


def coordination() -> list[Result]:
    """CPU of the coordinator for one checkpoint of 5,000 subtasks."""
    return [
        Result("coordinator_machine_5k", _median_cpu_s(_machine), "s CPU", "lower", TARGET_S),
        Result("coordinator_5k_one_worker_each", _cpu_of(SUBTASKS, 1), "s CPU", "lower", TARGET_S),
        Result("coordinator_5k_50_workers", _cpu_of(50, 100), "s CPU", "lower", TARGET_S),
    ]


def coordination_growth() -> list[Result]:
    """CPU of the coordinator, and bytes that it gets, for a checkpoint of 16 to 1,000 workers."""
    return [result for workers in WORKERS for result in growth_of(workers)]


def growth_of(workers: int) -> list[Result]:
    """Return the figures of one exchange between so many workers."""
    cluster = _Cluster(workers, 2, channels=True)
    cpu_s = cluster.checkpoint_cpu_s()
    name = f"coordinator_{workers}_workers"
    return [
        Result(name, cpu_s, "s CPU", "lower"),
        Result(f"{name}_acknowledgement", cluster.acknowledgement_bytes, "bytes", "lower"),
    ]


def _machine() -> None:
    """Only the decisions: one acknowledgement per subtask."""
    one = CheckpointId(1)
    subtasks = [SubtaskId("v", n) for n in range(SUBTASKS)]
    state = initial(CoordinatorConfig(interval_ms=None), subtasks, NO_CHECKPOINT, 0)
    for event in (CheckpointRequested(CheckpointKind.MANUAL, "r"), IdReserved(one)):
        state, _ = step(state, event, 1)
    for subtask in subtasks:
        state, _ = step(state, Acknowledged(one, frozenset({subtask})), 2)
    state, _ = step(state, Published(one), 3)
    assert state.last_completed_id == one


def _median_cpu_s(action: Callable[[], object]) -> float:
    action()
    return statistics.median(_cpu_s(action) for _ in range(REPEATS))


def _cpu_of(workers: int, vertices: int) -> float:
    """Decode, decide, build and write the manifest, tell everybody: one checkpoint of a cluster."""
    cluster = _Cluster(workers, vertices)
    cluster.checkpoint_cpu_s()
    return statistics.median(cluster.checkpoint_cpu_s() for _ in range(REPEATS))


def _cpu_s(action: Callable[[], object]) -> float:
    begin_s = process_time()
    action()
    return process_time() - begin_s


class _Inline(Executor):
    """Runs at once what it is given: its CPU counts, too."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Link:
    """Workers that answer every trigger at once; their own work is not counted."""

    def __init__(self) -> None:
        self.arrived: deque[bytes] = deque()
        self.triggered, self.heard_count = NO_CHECKPOINT, 0

    def send(self, worker: int, message: bytes) -> None:
        if worker == 0:
            heard = decode_to_worker(message)
            self.heard_count += heard.sequence is not None
            self.triggered = heard.checkpoint_id if isinstance(heard, Trigger) else self.triggered

    def receive(self) -> Iterator[bytes]:
        while self.arrived:
            yield self.arrived.popleft()

    def wake(self) -> None:
        """Do nothing: no thread sleeps."""


class _Cluster:
    """One real coordinator, and so many workers as it sees them."""

    def __init__(self, workers: int, vertices: int, *, channels: bool = False) -> None:
        self._workers = workers
        self._with_channels = channels
        self.acknowledgement_bytes = 0
        """The length of the last acknowledgement."""
        pipeline = Pipeline("scale")
        stream = pipeline.source("in", DatagenSource({"n": Sequence()}, rows=1))
        for _ in range(vertices - 1):
            stream = stream.rebalance().select("n")
        plan = stream.sink("out", CollectSink()).plan()
        store = CheckpointStore(MemoryObjectStore(), "scale")
        owner = Claimant(this_process(), Actor("bench"), "0", 1)
        self._generation = store.claims.claim(owner, wait_ms=lambda _: None)
        store.generations.record_base(self._generation, None)
        self._link = _Link()
        inline = _Inline()
        parts = CoordinatorParts(
            identity=JobIdentity("scale", Generation(self._generation), plan, workers),
            store=store,
            committers={},
            config=CoordinatorConfig(interval_ms=None),
            highest_id=NO_CHECKPOINT,
            parent_id=None,
            rows_total=None,
            claim_sha256=None,
        )
        self._operators = plan.operator_ids()
        self._edge = plan.edges[0]
        background = Background(inline, inline, inline, inline, inline, inline, inline)
        self._coordinator = Coordinator(parts, self._link, background, ManualClock(), NOBODY)
        self._sequence = 0
        self._say(self._register)
        self._say(self._greeted)
        self._coordinator.turn()

    def checkpoint_cpu_s(self) -> float:
        """Trigger one, acknowledge it by everybody, see it completed; workers cost nothing."""
        answer = self._coordinator.request(CheckpointKind.MANUAL)
        cpu_s = _cpu_s(self._turns)
        self._say(self._acknowledge)
        cpu_s += _cpu_s(self._turns)
        assert answer.result(0).outcome == "completed"
        return cpu_s

    def _turns(self) -> None:
        for _ in range(3):
            self._coordinator.turn()

    def _say(self, message: Callable[[int], ToCoordinator]) -> None:
        for worker in range(self._workers):
            numbers = {"sequence": self._sequence, "confirmed": self._link.heard_count}
            said = encode(message(worker).model_copy(update=numbers))
            self._link.arrived.append(said)
            self.acknowledgement_bytes = len(said)
        self._sequence += 1

    def _register(self, worker: int) -> ToCoordinator:
        return Register(
            generation=self._generation,
            worker=worker,
            pid=1,
            host="h",
            endpoint=f"ipc://{worker}",
            public_key="",
            claim_sha256=None,
            versions=own_versions(),
            open_files_max=None,
        )

    def _greeted(self, worker: int) -> ToCoordinator:
        return GreetingsMissing(generation=self._generation, worker=worker, senders=())

    def _acknowledge(self, worker: int) -> ToCoordinator:
        entries = tuple(
            SubtaskEntry(
                operator_id=operator,
                subtask_index=worker,
                sync_ms=0,
                async_ms=0,
            )
            for operator in self._operators
        )
        return SnapshotAck(
            generation=self._generation,
            worker=worker,
            checkpoint_id=self._link.triggered,
            entries=entries,
            alignment=self._alignment(worker) if self._with_channels else (),
        )

    def _alignment(self, worker: int) -> tuple[AlignmentEntry, ...]:
        """Return the event time of each channel: another one for each sender."""
        channels = tuple(
            ChannelEntry(input_id=sender, watermark_us=_TIME_US + 1_000 * sender, idle=False)
            for sender in range(self._workers)
        )
        return tuple(
            AlignmentEntry(
                vertex_id=vertex_id,
                subtask_index=worker,
                mode="aligned",
                start_delay_ms=1.5,
                alignment_ms=3.25,
                watermark_us=_TIME_US,
                channels=channels if vertex_id == self._edge.downstream else (),
            )
            for vertex_id in (self._edge.upstream, self._edge.downstream)
        )
