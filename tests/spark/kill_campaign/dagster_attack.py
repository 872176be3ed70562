"""Attacks on what watches the stream: it goes on without Dagster, and is recovered by it."""

import signal
from dataclasses import dataclass

from laminar_core.records.actor import ActorKind
from tests.spark.kill_campaign.adopted import AdoptedProcess, newest_log
from tests.spark.kill_campaign.attack import Attacker, Before
from tests.spark.kill_campaign.cells import DAGSTER_KINDS, Act, Cell, Phase
from tests.spark.kill_campaign.dagster_services import DagsterServices
from tests.spark.kill_campaign.stream import CampaignError, Driver
from tests.spark.processes import ends, kill, signal_process

ORPHANS_END_S = 60


@dataclass
class DagsterAttacker(Attacker):
    """As the other one; in half of the attacks the driver dies with the service."""

    services: DagsterServices

    def attack(self, cell: Cell) -> None:
        """Attack a service of Dagster, and wait until stream and sensor are well again."""
        if cell.phase is Phase.RETENTION:
            self._end_one_without_retention()
        driver = self._ready(cell)
        self.stream.wait("a look of the sensor", self.services.next_tick())
        driver_dies = cell.phase is not Phase.START and self.chance.random() < 0.5
        self._reach(cell, driver, self.point(cell))
        recoveries = self.services.recoveries()
        before = Before(0, driver.completed(0))
        began_ms = self.stream.clock.monotonic_ms()
        self.figures.attacks[cell] += 1
        pid = self.services.pid(cell.kind)
        signal_process(pid, signal.SIGKILL if cell.act is Act.KILL else signal.SIGSTOP)
        if driver_dies:
            self._recovered_by_dagster(cell, driver)
        else:
            self.stream.pauses.release()
            self._settle(cell, driver, before)
            self._begin_again(cell)
        self.stream.wait(f"{cell}: a look of the sensor", self.services.next_tick())
        if self.services.recoveries() != recoveries + driver_dies:
            raise CampaignError(f"{cell}: Dagster recovers a stream that is well")
        self.figures.recovery_ms.append(self.stream.clock.monotonic_ms() - began_ms)

    def leave_alone(self) -> None:
        """End the services."""
        for kind in DAGSTER_KINDS:
            kill(self.services.pid(kind))
            self.services.reap(kind)
        self.services.close()

    def _begin_again(self, cell: Cell) -> None:
        """What a service manager does, or SIGCONT."""
        if cell.act is Act.KILL:
            self.services.reap(cell.kind)
            self.services.start(cell.kind)
        else:
            signal_process(self.services.pid(cell.kind), signal.SIGCONT)

    def _recovered_by_dagster(self, cell: Cell, driver: Driver) -> None:
        """The driver dies while nobody watches; the sensor finds out, and one run recovers."""
        dead, family = driver.generation, driver.family()
        kill(driver.pid)
        self.stream.wait(f"{cell}: the end of the driver", lambda: driver.has_ended)
        self.stream.pauses.release()
        newest = self.stream.store.claims.last() or 0
        self._begin_again(cell)
        self.stream.wait(
            f"{cell}: Dagster's recovery of generation {newest}",
            lambda: (self.stream.store.claims.last() or 0) > newest,
        )
        self._adopt(cell, newest + 1)
        self.figures.ended_by["recovery by Dagster"] += 1
        if (runs := self.services.recoveries(newest)) != 1:
            raise CampaignError(f"{cell}: {runs} runs recover generation {newest} ({dead})")
        if left := [pid for pid in family if not ends(pid, ORPHANS_END_S)]:
            raise CampaignError(f"{cell}: processes {left} live on")

    def _adopt(self, cell: Cell, generation: int) -> None:
        claim = self.stream.store.generations.summaries()[-1].claim
        if claim is None or claim.actor_kind is not ActorKind.SENSOR:
            raise CampaignError(f"{cell}: generation {generation} was claimed by {claim}")
        log = newest_log(self.stream.folder / "drivers")
        driver = Driver(AdoptedProcess(claim.owner), log)
        self.stream.drivers.append(driver)
        self._wait_until_well(driver, f"after {cell}")

    def _end_one_without_retention(self) -> None:
        """Dagster deletes by a job of its own; only a driver of the campaign does it itself."""
        driver = self.stream.driver
        if driver is not None and isinstance(driver.process, AdoptedProcess):
            self.end(driver)
