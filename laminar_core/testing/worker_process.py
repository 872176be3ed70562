"""Workers in a simulation.

The real loop, one turn at a time, and the cluster's reaction to its end.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa

from laminar_core.driver.execution import Collected
from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.protocol.links import SIGN_INTERVAL_MS
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.executor import SimulatedExecutor
from laminar_core.testing.host_clock import HostClock
from laminar_core.testing.network import Network, SimulatedWorkerTransport
from laminar_core.testing.polled_calls import PolledCalls
from laminar_core.testing.world import Process, World
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.life import Activity, AtWork, SignsOfLife
from laminar_core.worker.snapshots import BackgroundThreads
from laminar_core.worker.worker import Worker

DEATH_SEEN_MS = 40.0
"""Time from the death of a worker until the cluster notices."""

LINGER_MS = 2_500.0
"""How long the other workers of its stage live on after that."""


OpenStore = Callable[[str, Callable[[], bool]], CheckpointStore]
"""The store as a process sees it: its name, and whether it still lives."""


class _ComputingWorker(Worker):
    """A worker whose next operator may take longer than usual."""

    spend: Callable[[float], None]
    before_computing: Callable[[], float] | None = None
    """Called once, when the next operator computes; returns how long that takes, in ms."""

    def on_operator(self, operator_id: str) -> None:
        """Let the operator take its time."""
        super().on_operator(operator_id)
        if self.before_computing is not None:
            begin, self.before_computing = self.before_computing, None
            self.spend(begin())


class WorkerProcess(Process):
    """One worker and its background thread."""

    def __init__(
        self,
        world: World,
        network: Network,
        deployment: Deployment,
        index: int,
        open_store: OpenStore,
    ) -> None:
        super().__init__(world, f"g{deployment.generation}-worker-{index}")
        self.index = index
        self.ended: Future[list[tuple[str, pa.RecordBatch]]] = Future()
        """The rows that its sinks collected, or the cause of its death."""
        self.executor = SimulatedExecutor(world, f"{self.name}-snapshots")
        self.compactions = SimulatedExecutor(world, f"{self.name}-compactions")
        self.transport = SimulatedWorkerTransport(network, deployment.address.endpoint, index, self)
        self._network = network
        store = open_store(self.name, lambda: not self.ended.done())
        self.host = f"host-{index}"
        self.clock = world.clock_of(self.host)
        threads = BackgroundThreads(self.executor, self.compactions, PolledCalls(self.clock))
        self.worker = _ComputingWorker(
            deployment, index, self.transport, store, threads, self.clock
        )
        self.worker.spend = world.spend
        self.worker.activity = self._activity = TurnActivity(self.clock)
        self.life = LifeThread(world, self.name, self.worker.signs, self.clock)
        self._registered = False
        world.add(self)

    def turn(self) -> float:
        """Start, or run the loop once, or leave; as the task in Spark does."""
        worker = self.worker
        self._activity.forget()
        try:
            if not self._registered:
                worker.start(self.host)
                worker.register(pid=self.index, host=self.host)
                self._registered = True
                self.life.start()
            busy = worker.run_once()
            if worker.working:
                return 0.0 if busy else self.clock.to_world_ms(worker.wait_ms())
            self._leave(list(worker.collected()))
        except Exception as error:  # noqa: BLE001 - the worker dies of it
            self.world.note(self.name, f"dies: {error}")
            worker.failed(error)
            self._die(f"{self.name} died: {error}")
        return math.inf

    def hold(self, *, held: bool = True) -> None:
        """Put it to sleep, with its background thread, or let go of it."""
        self.world.note(self.name, "falls asleep" if held else "wakes up")
        self.held = self.executor.held = self.compactions.held = self.life.held = held

    def when_computing(self, begin: Callable[[], float]) -> None:
        """Call ``begin`` when the next operator computes here; it returns how many ms it takes."""
        self.worker.before_computing = begin

    def kill(self) -> None:
        """Kill the worker: nothing is closed, and some of its last messages are lost."""
        if self.ended.done():
            return
        self.world.note(self.name, "is killed")
        self._network.lose(self.transport.endpoint)
        self.executor.kill()
        self.compactions.kill()
        self._remove()
        self.ended.set_exception(_lost(f"{self.name} was killed"))

    def _leave(self, collected: list[tuple[str, pa.RecordBatch]]) -> None:
        self._close()
        self.ended.set_result(collected)

    def _die(self, reason: str) -> None:
        self._close()
        self.ended.set_exception(_lost(reason))

    def _close(self) -> None:
        self.worker.close()
        self.executor.shutdown()
        self.compactions.shutdown()
        self._remove()

    def _remove(self) -> None:
        self.worker.wiring.calls.close()
        self.worker.wiring.backend.close()  # A process that ends leaves no open files.
        self.transport.close()
        self.world.remove(self.life)
        self.world.remove(self)


class TurnActivity(Activity):
    """The activity of a loop within a turn, which is computed at once but lasts a while.

    The loop's clock is ahead by the time that it has spent. Readers see the activity at their own
    time.
    """

    def __init__(self, clock: HostClock) -> None:
        super().__init__(clock)
        self._moments: list[tuple[float, AtWork | None]] = []

    def show(self, at_work: AtWork | None) -> None:
        """Store the activity with its start."""
        super().show(at_work)
        self._moments.append((self._clock.monotonic_ms(), at_work))

    def shown(self) -> AtWork | None:
        """Return what holds at the reader's time."""
        now_ms = self._clock.monotonic_ms()
        return next((at for since_ms, at in reversed(self._moments) if since_ms <= now_ms), None)

    def forget(self) -> None:
        """Begin the next turn: those before it are over."""
        self._moments.clear()


class LifeThread(Process):
    """The second thread of a worker: it sends signs of life also while the loop is in a turn."""

    def __init__(self, world: World, worker: str, signs: SignsOfLife, clock: HostClock) -> None:
        super().__init__(world, f"{worker}-life")
        self._signs = signs
        self._clock = clock

    def start(self) -> None:
        """Start together with the loop."""
        self.world.add(self)
        self.wake(self.world.now_ms + self._clock.to_world_ms(SIGN_INTERVAL_MS))

    def turn(self) -> float:
        """Send one heartbeat."""
        self._signs.beat()
        return self._clock.to_world_ms(SIGN_INTERVAL_MS)


class SimulatedStage:
    """The workers of one generation. One that dies takes the others along, as in Spark."""

    def __init__(self, world: World, workers: list[WorkerProcess]) -> None:
        self.ended: Future[Collected] = Future()
        self.workers = workers
        self._world = world
        for worker in workers:
            world.later(world.random.choice((0.0, 5.0, 300.0)), worker.wake)
            worker.ended.add_done_callback(self._on_worker_ended)

    def interrupt(self) -> None:
        """Kill all remaining workers, including suspended ones."""
        for worker in self.workers:
            worker.kill()

    def _on_worker_ended(self, ended: "Future[list[tuple[str, pa.RecordBatch]]]") -> None:
        if ended.exception() is not None:
            self._world.later(DEATH_SEEN_MS, lambda: self._lose(ended))
        elif all(w.ended.done() and w.ended.exception() is None for w in self.workers):
            self._finish()

    def _lose(self, ended: "Future[list[tuple[str, pa.RecordBatch]]]") -> None:
        if not self.ended.done():
            self.ended.set_exception(ended.exception())
            self._world.later(LINGER_MS, self._kill_awake)

    def _kill_awake(self) -> None:
        """Kill the workers that are not suspended; suspended ones become zombies."""
        for worker in self.workers:
            if not worker.held:
                worker.kill()

    def _finish(self) -> None:
        batches: dict[str, list[pa.RecordBatch]] = {}
        for worker in self.workers:
            for sink, batch in worker.ended.result():
                batches.setdefault(sink, []).append(batch)
        if not self.ended.done():
            self.ended.set_result({s: pa.Table.from_batches(b) for s, b in batches.items()})


def _lost(reason: str) -> JobFailedError:
    return JobFailedError(ErrorCode.WORKER_LOST, f"a worker died: {reason}")
