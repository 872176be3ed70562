"""What can go wrong with a simulated job, at moments that dice pick.

Each kind is a method that plans one disaster. ``hits`` counts those that came to pass: a moment may
lie behind the end of the job.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    JobFailedError,
    StorageUnavailable,
)
from laminar_core.runtime.options import JobResult
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import Job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

TURNS_PER_WORKER = 150
"""About as many turns as an undisturbed run takes."""

STALLS_MS = (30.0, 300.0, 3_000.0, 16_000.0, 31_000.0)
"""Also beyond what worker and coordinator take for death."""

AGAIN = 0.4
"""How likely a crash is followed by another one."""

DAY_MS = 86_400_000.0
DRIVERS_MAX = 30
"""A job that needs more drivers than this does not get anywhere."""


class Disasters:
    """Plans disasters for one job, and runs it through them."""

    def __init__(self, simulation: Simulation, job: Job, dice: Random) -> None:
        self.simulation = simulation
        self.job = job
        self.dice = dice
        self.hits: Counter[str] = Counter()
        self.result: JobResult | None = None
        """How the job ended; whichever driver brought it to an end."""
        self.last_hit_ms = simulation.world.now_ms
        """When the last disaster began, or the last one that lasts was over."""
        self.damaged_keys: set[str] = set()
        """Stored objects that were damaged on purpose."""
        self._next_run: dict[str, Any] = {}
        """Fields of ``JobOptions`` for the next driver."""
        self._delays: list[tuple[str, float, float]] = []
        self._allow_fresh = False

    @property
    def _world_ms(self) -> float:
        return self.simulation.world.now_ms

    # --- crashes --------------------------------------------------------------------------------

    def worker_crash(self) -> None:
        """SIGKILL for a worker; often for another one soon after, in the midst of recovery."""
        parallelism, world = self.simulation.options.parallelism, self.simulation.world

        def kill() -> None:
            index = self.dice.randrange(parallelism)
            if self._hit("worker-crash", f"worker {index}"):
                self.simulation.kill_worker(index)
                if self.dice.random() < AGAIN:
                    soon = self.dice.randrange(20, 60 * (1 + parallelism))
                    world.at_turn(world.turns + soon, kill)

        self._at_some_turn(kill)

    def driver_crash(self) -> None:
        """SIGKILL for the driver."""

        def kill() -> None:
            if self._hit("driver-crash", "the newest driver"):
                self.simulation.kill_driver()

        self._at_some_turn(kill)

    def crash_in_store_call(self, calls: int = 150) -> None:
        """Whoever makes some call dies of it: before it is made, or when it has been."""

        def kill(call: StoreCall) -> None:
            self._hit("crash-in-store-call", f"{call.moment} {call.verb} of {call.key}")
            self._kill_caller(call)

        self._at_some_call(calls, lambda _: True, kill)

    def torn_write(self) -> None:
        """Whoever writes dies in the midst of it; a piece stays under a temporary name."""

        def kill(call: StoreCall) -> None:
            disk, written = self.simulation.objects, 0
            if isinstance(disk, SimulatedDisk):
                written = disk.tear(call.key, call.data, self.dice)
            said = f"{written} of {len(call.data)} bytes of {call.key}"
            self._hit("torn-write", said)
            self._kill_caller(call)

        self._at_some_call(60, _begins_to_write, kill)

    # --- the store and the sinks ----------------------------------------------------------------

    def store_errors(self) -> None:
        """Some calls of the store raise, and nothing has happened."""
        self._fail_calls("store-error", "before")

    def lost_answers(self) -> None:
        """Some calls of the store raise although they have happened."""
        self._fail_calls("lost-answer", "after")

    def sink_errors(self) -> None:
        """Some calls of the sinks' committers raise, before or after they have happened."""
        fail = self._failure("sink-error")

        def observe(verb: str, moment: str) -> None:
            if verb != "stage":
                fail(f"{moment} {verb}")

        for ledger in self.job.ledgers.values():
            ledger.observe = observe

    def slow_store(self) -> None:
        """Everything that is done in the background takes longer, for a while."""
        factor, lasts_ms = self.dice.choice((5.0, 30.0, 100.0)), self.dice.choice(STALLS_MS[:3])
        world = self.simulation.world

        def recover() -> None:
            world.store_slowness = 1.0

        def slow_down() -> None:
            if self._hit("slow-store", f"{factor:g} times for {lasts_ms:g} ms", lasts_ms):
                world.store_slowness = factor
                world.later(lasts_ms, recover)

        self._at_some_turn(slow_down)

    def corruption(self) -> None:
        """A file of the newest completed checkpoint is damaged; mostly somebody dies then."""
        crash = self.dice.random() < 0.7  # noqa: PLR2004 - mostly
        self._at_some_turn(lambda: self._damage(crash=crash))

    def _damage(self, *, crash: bool) -> None:
        disk, store = self.simulation.objects, self.simulation.store
        completed = store.completed_ids()
        if self.result is not None or not completed or not isinstance(disk, SimulatedDisk):
            return
        try:
            manifest = store.read_manifest(completed[-1])
        except CorruptCheckpointError:
            return  # Damaged already.
        keys = [store.paths.manifest(completed[-1])]
        keys += [store.paths.absolute(file.path) for file in manifest.files() if file.size_bytes]
        key = self.dice.choice(keys)
        if disk.size(key):
            self.damaged_keys.add(key)
            how = disk.damage(key, self.dice)
            self._hit("corruption", f"{how} {key}")
            if crash:
                self.simulation.kill_worker(0)

    # --- time -----------------------------------------------------------------------------------

    def stall(self) -> None:
        """A process stands still for a while, as in a long collection of garbage."""
        lasts_ms = self.dice.choice(STALLS_MS)
        whom = self.dice.choice(("driver", "machine", "worker", "worker"))
        index = self.dice.randrange(self.simulation.options.parallelism)
        self._at_some_turn(lambda: self._stall(whom, index, lasts_ms))

    def _stall(self, whom: str, index: int, lasts_ms: float) -> None:
        if not self.simulation.drivers or not self._hit(
            "stall", f"{whom} (worker {index}) for {lasts_ms:g} ms", lasts_ms
        ):
            return
        driver = self.simulation.drivers[-1]
        hold: Callable[..., None]
        if whom == "driver":
            hold = driver.hold_itself
        elif whom == "machine":
            hold = driver.hold
        elif driver.stages and index < len(driver.stages[-1].workers):
            hold = driver.stages[-1].workers[index].hold
        else:
            return
        hold()
        self.simulation.world.later(lasts_ms, lambda: hold(held=False))

    def slow_link(self) -> None:
        """Everything from and to one worker takes longer, all the time."""
        index = self.dice.randrange(self.simulation.options.parallelism)
        extra_ms = self.dice.choice((3.0, 20.0, 100.0))
        self._hit("slow-link", f"worker {index}, {extra_ms:g} ms")
        self._delay(f"/worker-{index}", extra_ms, float("inf"))

    def delay_spike(self) -> None:
        """Messages of one worker, or of all, are held up for a while."""
        index = self.dice.choice(("", "0", str(self.simulation.options.parallelism - 1)))
        extra_ms, lasts_ms = (
            self.dice.choice((100.0, 1_000.0, 5_000.0)),
            self.dice.choice((50, 500)),
        )

        def spike() -> None:
            what = f"worker {index or 'all'}, {extra_ms:g} ms"
            if self._hit("delay-spike", what, lasts_ms + extra_ms):
                self._delay(f"/worker-{index}", extra_ms, self._world_ms + lasts_ms)

        self._at_some_turn(spike)

    def reordering(self) -> None:
        """Frames of data overtake each other on their way."""
        frames = self.dice.choice((1, 3, 8))
        self._hit("reordering", f"by up to {frames} frames")
        self.simulation.network.reorder_max = frames

    def lossy_link(self) -> None:
        """What coordinator and workers tell each other is lost, or comes twice."""
        network = self.simulation.network
        network.control_loss = self.dice.choice((0.0, 0.1, 0.3))
        network.control_repeat = self.dice.choice((0.1, 0.3))
        shares = f"{network.control_loss:g} lost, {network.control_repeat:g} repeated"
        self._hit("lossy-link", shares)

    def clock_skew(self) -> None:
        """Wall clocks disagree, and monotonic clocks run at different rates."""
        hosts = [f"host-{n}" for n in range(self.simulation.options.parallelism)]
        for host in [*hosts, "driver-1", "driver-2", "driver-3"]:
            clock = self.simulation.world.clock_of(host)
            clock.step_wall(self.dice.choice((-DAY_MS, -999.0, 0.0, 999.0, DAY_MS)))
            clock.run_at(self.dice.choice((0.9, 0.99, 1.0, 1.01, 1.1)))
        self._hit("clock-skew", "on all hosts")

    def clock_step(self) -> None:
        """Wall clocks are set anew."""
        hosts = ["host-0", "driver-1", "driver-2"]
        by_ms = self.dice.choice((-DAY_MS, -5_000.0, 5_000.0, DAY_MS))

        def step() -> None:
            if self._hit("clock-step", f"by {by_ms:g} ms"):
                for host in hosts:
                    self.simulation.world.clock_of(host).step_wall(by_ms)

        self._at_some_turn(step)

    # --- zombies --------------------------------------------------------------------------------

    def zombie(self) -> None:
        """A driver and its workers fall asleep while another one runs the job, and wake up."""
        self._at_some_turn(lambda: self._take_over("zombie"))

    def zombie_in_store_call(self, calls: int = 120) -> None:
        """The same, in the midst of some call of the store."""
        self._at_some_call(calls, lambda _: True, lambda _: self._take_over("zombie-in-store-call"))

    def _take_over(self, kind: str) -> None:
        if not self.simulation.drivers or not self._hit(kind, "the newest driver"):
            return
        sleeping = self.simulation.drivers[-1]
        sleeping.hold()
        if self.dice.random() < 0.6:  # noqa: PLR2004 - more often than not
            wakes = self.simulation.world.turns + self.dice.randrange(100, 600)
            self.simulation.world.at_turn(wakes, lambda: sleeping.hold(held=False))
        self.run_one()
        sleeping.hold(held=False)

    # --- people ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Somebody stops the job with a last checkpoint, and starts it again."""

        def stop() -> None:
            if self._hit("stop", "the newest driver"):
                self.simulation.stop()

        self._at_some_turn(stop)

    def cancel(self) -> None:
        """Somebody ends the job at once, and starts it again."""

        def cancel() -> None:
            if self._hit("cancel", "the newest driver"):
                self.simulation.cancel()

        self._at_some_turn(cancel)

    def go_back(self) -> None:
        """The driver dies, and somebody has the next one restore some older checkpoint."""

        def kill() -> None:
            store = self.simulation.store
            usable = [
                summary.checkpoint_id
                for summary in store.list_summaries()
                if summary.outcome == "completed" and not summary.orphan
            ]
            if usable and self._hit("go-back", f"one of {usable}"):
                self._next_run = {"restore_id": self.dice.choice(usable), "take_over": True}
                self.simulation.kill_driver()

        self._at_some_turn(kill)

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> JobResult:
        """Drivers until one of them brings the job to an end.

        Raises:
            AssertionError: too many of them did not.
        """
        for _ in range(DRIVERS_MAX):
            self.run_one()
            if self.result is not None:
                return self.result
        raise AssertionError(f"{DRIVERS_MAX} drivers did not bring the job to an end")

    def run_one(self) -> None:
        """One driver, or the next one if it is killed; it may find that the job is not its own."""
        options, self._next_run = self._next_run, {}
        try:
            result = self.simulation.run(allow_fresh=self._allow_fresh, **options)
            if result.outcome == "finished":
                self.result = result
        except (FencedError, ProcessKilledError, StorageUnavailable) as error:
            self.simulation.world.note("job", f"a driver is over: {type(error).__name__} {error}")
        except JobFailedError as error:
            if error.code is not ErrorCode.CANCELLED:
                raise
        except ConfigurationError as error:
            self.simulation.world.note("job", f"a driver is refused: {error}")
            if error.code is ErrorCode.NO_RESTORABLE_CHECKPOINT and self.hits["corruption"]:
                self._allow_fresh = True  # As a person would decide who was told.
            elif error.code is not ErrorCode.JOB_OWNED:
                raise

    def let_zombies_speak(self) -> None:
        """Until the last of them has noticed that nobody answers."""
        world = self.simulation.world
        world.run_until(lambda: world.deserted, 60_000)

    # --- moments --------------------------------------------------------------------------------

    def _hit(self, kind: str, what: str, lasts_ms: float = 0.0) -> bool:
        """Count it, if the job has not ended before."""
        if self.result is not None:
            return False
        self.hits[kind] += 1
        self.last_hit_ms = max(self.last_hit_ms, self._world_ms + lasts_ms)
        self.simulation.world.note("FAULT", f"{kind}: {what}")
        return True

    def _at_some_turn(self, action: Callable[[], None]) -> None:
        turns = TURNS_PER_WORKER * (1 + self.simulation.options.parallelism)
        self.simulation.world.at_turn(self.dice.randrange(1, turns), action)

    def _at_some_call(
        self,
        calls: int,
        matches: Callable[[StoreCall], bool],
        action: Callable[[StoreCall], None],
    ) -> None:
        chosen, count = self.dice.randrange(1, calls), 0

        def observe(call: StoreCall) -> None:
            nonlocal count
            count += matches(call)
            if count == chosen and matches(call) and self.result is None:
                count += 1
                action(call)

        self.simulation.observers.append(observe)

    def _fail_calls(self, kind: str, moment: str) -> None:
        fail = self._failure(kind)

        def observe(call: StoreCall) -> None:
            if call.moment == moment:
                fail(f"{call.verb} of {call.key}, called by {call.process}")

        self.simulation.observers.append(observe)

    def _failure(self, kind: str) -> Callable[[str], None]:
        left, chance = self.dice.randrange(1, 12), self.dice.choice((0.01, 0.05, 0.2))

        def fail(what: str) -> None:
            nonlocal left
            if left > 0 and self.dice.random() < chance and self._hit(kind, what):
                left -= 1
                raise StorageUnavailable(ErrorCode.STORE_IO, f"it did not answer: {what}")

        return fail

    def _kill_caller(self, call: StoreCall) -> None:
        for driver in self.simulation.drivers:
            if call.process == driver.name:
                driver.kill()
            for stage in driver.stages:
                for worker in stage.workers:
                    if worker.name == call.process:
                        worker.kill()

    def _delay(self, where: str, extra_ms: float, until_ms: float) -> None:
        self._delays.append((where, extra_ms, until_ms))
        self.simulation.network.extra_ms = self._extra_ms

    def _extra_ms(self, sender: str, endpoint: str) -> float:
        return sum(
            extra_ms * self.dice.random()
            for where, extra_ms, until_ms in self._delays
            if self._world_ms < until_ms and (where in sender or where in endpoint)
        )


def _begins_to_write(call: StoreCall) -> bool:
    return call.moment == "before" and call.verb in ("put", "put_if_absent")


KINDS: dict[str, Callable[[Disasters], None]] = {
    "worker-crash": Disasters.worker_crash,
    "driver-crash": Disasters.driver_crash,
    "crash-in-store-call": Disasters.crash_in_store_call,
    "torn-write": Disasters.torn_write,
    "store-error": Disasters.store_errors,
    "lost-answer": Disasters.lost_answers,
    "sink-error": Disasters.sink_errors,
    "slow-store": Disasters.slow_store,
    "corruption": Disasters.corruption,
    "stall": Disasters.stall,
    "slow-link": Disasters.slow_link,
    "delay-spike": Disasters.delay_spike,
    "reordering": Disasters.reordering,
    "lossy-link": Disasters.lossy_link,
    "clock-skew": Disasters.clock_skew,
    "clock-step": Disasters.clock_step,
    "stop": Disasters.stop,
    "cancel": Disasters.cancel,
    "go-back": Disasters.go_back,
    "zombie": Disasters.zombie,
    "zombie-in-store-call": Disasters.zombie_in_store_call,
}
