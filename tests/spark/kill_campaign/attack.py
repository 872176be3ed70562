"""One attack: bring the stream to the point, send the signal, see that it comes back as it must."""

import random
import signal
from dataclasses import dataclass

from laminar_core.protocol.types import Generation
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.sensors.recovery.decision import Alarm, Leave, Recover
from tests.spark.kill_campaign.cells import Act, Cell, Kind, Phase
from tests.spark.kill_campaign.figures import Figures
from tests.spark.kill_campaign.pauses import Point
from tests.spark.kill_campaign.stream import FENCED_CODE, AttackedStream, CampaignError, Driver
from tests.spark.kill_campaign.watching import Sensor, name_of
from tests.spark.processes import ends, kill, signal_process

LOOK_MS = 1_000
ORPHANS_END_S = 60
_IN_WORKERS = (Kind.WORKER, Kind.DAEMON)


def points_of(cell: Cell) -> tuple[Point, ...]:
    """Return where the stream may stand when the signal comes; empty: it just runs."""
    in_workers = cell.kind in _IN_WORKERS
    match cell.phase:
        case Phase.START:
            return ("opened",) if in_workers else ("claim",)
        case Phase.RESTORE:
            return ("restore",) if in_workers else ("base",)
        case Phase.RUN:
            return ()
        case Phase.CUT:
            return ("snapshot",)
        case Phase.COMMIT:
            return ("commit",)
        case Phase.RETENTION:
            return ("deletion",)
        case Phase.STOP:
            return ("stop-trigger",) if in_workers else ("stop-trigger", "end")


@dataclass(frozen=True)
class Before:
    """The stream has come back once more checkpoints completed above this generation."""

    generation: int
    completed: int


def _before(cell: Cell, driver: Driver) -> Before:
    """A JVM or a worker that dies takes its generation along; else the same one may go on."""
    dies = cell.act is Act.KILL and cell.kind in (Kind.JVM, Kind.WORKER)
    generation = driver.generation if dies else 0
    return Before(generation, driver.completed(generation))


@dataclass
class Attacker:
    """Attacks one stream, cell by cell."""

    stream: AttackedStream
    sensor: Sensor
    figures: Figures
    chance: random.Random

    def attack(self, cell: Cell) -> None:
        """Attack, and wait until the stream is well again.

        Raises:
            CampaignError: something is not as it has to be.
        """
        driver = self._ready(cell)
        point = self.point(cell)
        self._reach(cell, driver, point)
        pid = self._target(cell, driver)
        family, before = driver.family(), _before(cell, driver)
        began_ms = self.stream.clock.monotonic_ms()
        self.figures.attacks[cell] += 1
        if cell.act is Act.KILL:
            self._kill(cell, driver, pid)
        else:
            self._stop(cell, driver, pid, point)
        if self.stream.drivers[-1] is driver:
            self._settle(cell, driver, before)
        self.figures.recovery_ms.append(self.stream.clock.monotonic_ms() - began_ms)
        self._expect_no_orphans(cell, family)

    def point(self, cell: Cell) -> Point | None:
        """Choose where the stream stands when the signal comes; None: it runs."""
        points = points_of(cell)
        return self.chance.choice(points) if points else None

    # --- before -----------------------------------------------------------------------------------

    def _ready(self, cell: Cell) -> Driver:
        """Return a driver that is on its way to the phase."""
        driver = self.stream.driver
        if cell.phase is Phase.START and cell.kind not in _IN_WORKERS:
            if driver is not None:
                self.end(driver)
            self.stream.pauses.arm("claim")
            return self.stream.start()
        if driver is None:
            driver = self.stream.start()
        self._wait_until_well(driver, "before the attack")
        if cell.kind is Kind.DAEMON and driver.daemon is None:
            kill(self.chance.choice(driver.workers))  # They outlive their daemon, until the next.
            self._wait_until_well(driver, "with another daemon")
            self.stream.wait("another daemon", lambda: driver.daemon is not None)
        return driver

    def _wait_until_well(self, driver: Driver, when: str) -> None:
        completed = driver.completed()
        self.stream.wait(
            f"a checkpoint {when}", lambda: driver.completed() > completed or driver.has_ended
        )
        if driver.has_ended:
            raise CampaignError(f"the driver ended {when}; {self.stream.said()}")

    def _reach(self, cell: Cell, driver: Driver, point: Point | None) -> None:
        """Bring the stream to the point."""
        pauses = self.stream.pauses
        if point is None:
            pauses.disarm()
            seen = driver.count("progress")
            self.stream.wait(f"{cell}: progress", lambda: driver.count("progress") > seen + 1)
            return
        if point != "claim":
            pauses.arm(point)
        if point in ("opened", "restore", "base"):
            kill(self.chance.choice(driver.workers))  # Its successors come to the point.
        if cell.phase is Phase.STOP:
            driver.process.send_signal(signal.SIGTERM)
        self.stream.wait(
            f"{cell}: {point}", lambda: pauses.reached_by() is not None or driver.has_ended
        )
        if pauses.reached_by() is None:
            raise CampaignError(f"{cell}: the driver ended before {point}; {self.stream.said()}")

    def _target(self, cell: Cell, driver: Driver) -> int:
        """Return whom the signal hits: of the workers the one that waits, or any."""
        match cell.kind:
            case Kind.DRIVER:
                return driver.pid
            case Kind.JVM:
                found = driver.jvm
            case Kind.DAEMON:
                found = driver.daemon
            case _:
                reached = self.stream.pauses.reached_by()
                is_worker = reached is not None and reached != driver.pid
                found = reached if is_worker else self.chance.choice(driver.workers)
        if found is None:
            raise CampaignError(f"{cell}: there is no such process; {self.stream.said()}")
        return found

    # --- the signal -------------------------------------------------------------------------------

    def _kill(self, cell: Cell, driver: Driver, pid: int) -> None:
        if not kill(pid):
            raise CampaignError(f"{cell}: process {pid} was gone before; {self.stream.said()}")
        if cell.kind is Kind.DRIVER:
            driver.process.wait()
            self.stream.pauses.release()
            self._start_again(cell)
        else:
            self.stream.pauses.release()

    def _stop(self, cell: Cell, driver: Driver, pid: int, point: Point | None) -> None:
        signal_process(pid, signal.SIGSTOP)
        is_taken_over = (
            cell.kind is Kind.DRIVER
            and cell.phase is not Phase.START
            and self.chance.random() < 0.5
        )
        try:
            if is_taken_over:
                self._take_over(cell)
            elif cell.phase is not Phase.START:
                self._expect_leave(cell)
        finally:
            self.stream.pauses.release()
            signal_process(pid, signal.SIGCONT)
        if is_taken_over:
            self._expect_fenced(cell, driver, point)

    def _start_again(self, cell: Cell) -> None:
        """What the sensor decides about a driver that is gone is done: one decision, one driver."""
        facts, decided = self.sensor.look()
        is_dead = facts.generation > 0 and not facts.on_purpose
        if isinstance(decided, Recover) != is_dead or isinstance(decided, Alarm):
            raise CampaignError(f"{cell}: {decided} of {facts}")
        if not isinstance(decided, Recover):
            self.figures.ended_by["start by hand"] += 1
            driver = self.stream.start()
        else:
            if (decided.attempt, decided.running_driver) != (1, "refuse"):
                raise CampaignError(f"{cell}: {decided} of {facts}")
            self.figures.ended_by["recovery by the sensor"] += 1
            driver = self._recover(Generation(facts.generation), decided)
        self._wait_until_well(driver, f"after {cell}")

    def _recover(self, generation: Generation, decided: Recover) -> Driver:
        expected = ("--expect-generation", str(generation), "--reason", decided.reason[:150])
        take_over = ("--take-over",) if decided.running_driver == "take_over" else ()
        return self.stream.start(
            *expected, *take_over, actor=Actor("sensor campaign", ActorKind.SENSOR)
        )

    def _take_over(self, cell: Cell) -> None:
        """The sensor takes a driver that stands still for dead; another one becomes the owner."""
        generation = self.stream.store.claims.last()
        decided = self.sensor.look_until_silent()
        self.sensor.begin_anew()
        if not isinstance(decided, Recover) or decided.running_driver != "take_over":
            raise CampaignError(f"{cell}: {decided} of a driver that stands still")
        assert generation is not None
        self.figures.ended_by["take-over by the sensor"] += 1
        self.stream.pauses.disarm()  # For the next driver; the one that waits stands still.
        self._wait_until_well(self._recover(generation, decided), f"after {cell}")

    def _expect_fenced(self, cell: Cell, driver: Driver, point: Point | None) -> None:
        """The driver that was asleep writes nothing that counts, and ends."""
        self.stream.wait(f"{cell}: the end of the driver that slept", lambda: driver.has_ended)
        # One that slept before its last record has nothing left to do but to write it.
        allowed = {FENCED_CODE, 0} if point == "end" else {FENCED_CODE}
        if driver.process.returncode not in allowed:
            raise CampaignError(f"{cell}: it ended with {driver.process.returncode}")
        successor = self.stream.drivers[-1]
        if successor.has_ended and successor.process.returncode != 0:
            raise CampaignError(f"{cell}: the one that slept ended the new one")

    # --- afterwards -------------------------------------------------------------------------------

    def _settle(self, cell: Cell, driver: Driver, before: "Before") -> None:
        """The driver heals the job by itself, and the sensor sees that and leaves it alone."""
        due_ms = self.stream.clock.monotonic_ms()

        def well() -> bool:
            nonlocal due_ms
            if self.stream.clock.monotonic_ms() >= due_ms:
                due_ms = self.stream.clock.monotonic_ms() + LOOK_MS
                self._expect_leave_while_alive(cell, driver)
            return self._has_come_back(cell, driver, before)

        self.stream.wait(f"{cell}: the driver's own recovery", well)
        is_over = driver.has_ended
        if is_over and (cell.phase is not Phase.STOP or driver.process.returncode != 0):
            code = driver.process.returncode
            raise CampaignError(f"{cell}: the driver gave up with {code}; {self.stream.said()}")
        self.figures.ended_by["the driver itself" if cell.act is Act.KILL else "SIGCONT"] += 1
        if is_over:
            self._expect_leave(cell)

    def _has_come_back(self, cell: Cell, driver: Driver, before: "Before") -> bool:
        if cell.phase is Phase.STOP or driver.has_ended:
            return driver.has_ended
        return driver.completed(before.generation) > before.completed

    def _expect_leave_while_alive(self, cell: Cell, driver: Driver) -> None:
        _, decided = self.sensor.look()
        if not driver.has_ended and not isinstance(decided, Leave):
            raise CampaignError(f"{cell}: {name_of(decided)} while the driver lives: {decided}")

    def _expect_leave(self, cell: Cell) -> None:
        for _ in range(2):
            facts, decided = self.sensor.look()
            if not isinstance(decided, Leave):
                raise CampaignError(f"{cell}: {decided} of {facts}")

    def _expect_no_orphans(self, cell: Cell, family: list[int]) -> None:
        """Of those that ran before, who belongs to nobody any more ends."""
        newest = self.stream.driver
        current = set() if newest is None else {newest.pid, *newest.family()}
        left = [pid for pid in family if pid not in current and not ends(pid, ORPHANS_END_S)]
        if left:
            raise CampaignError(f"{cell}: processes {left} live on; {self.stream.said()}")

    def leave_alone(self) -> None:
        """From now on only the campaign starts drivers."""

    def end(self, driver: Driver) -> None:
        """Stop a driver in good order."""
        driver.process.send_signal(signal.SIGTERM)
        self.stream.wait("the end of the driver", lambda: driver.has_ended)
        if driver.process.returncode:
            raise CampaignError(f"it did not stop in good order: {self.stream.said()}")
