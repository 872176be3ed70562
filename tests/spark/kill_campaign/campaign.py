"""Rounds of attacks: each has a stream of its own, which in the end must have the exact output."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.kill_campaign.attack import Attacker
from tests.spark.kill_campaign.cells import Cell
from tests.spark.kill_campaign.dagster_attack import DagsterAttacker
from tests.spark.kill_campaign.dagster_services import DagsterServices
from tests.spark.kill_campaign.figures import Figures
from tests.spark.kill_campaign.interrupt import Interrupt, Interrupted
from tests.spark.kill_campaign.stream import FAST, AttackedStream, CampaignError
from tests.spark.kill_campaign.watching import Sensor

ROWS_PER_ROUND = 1_200_000
"""At the pace of an attacked stream they last for ten minutes of running, restarts not counted."""


class Campaign:
    """Runs cells until it is stopped; a round that fails is reported and the next one begins."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        say: Callable[[str], None],
        rows: int = ROWS_PER_ROUND,
        interrupt: Interrupt | None = None,
    ) -> None:
        self.figures = Figures(seed)
        self._folder = folder
        self._rows = rows
        self._say = say
        self._interrupt = interrupt or Interrupt()
        self._clock: Clock = SystemClock()
        self._chance = random.Random(seed)
        self._cell: Cell | None = None

    def run(self, rounds: Iterator[list[Cell]], may_go_on: Callable[[], bool]) -> Figures:
        """Attack cell after cell, round after round, until stopped or interrupted."""
        try:
            while may_go_on():
                self._interrupt.check()
                self.round(next(rounds), may_go_on)
            self.figures.ended_with = "its time"
        except Interrupted as interrupted:
            self.figures.ended_with = str(interrupted)
        return self.figures

    def round(self, cells: Sequence[Cell], may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Attack one stream with these cells, let it finish, and look at what it wrote.

        Raises:
            Interrupted: no process of the round is left, and it counts as neither exact nor failed.
        """
        figures = self.figures
        number = figures.rounds = figures.rounds + 1
        attacks, began_ms = figures.attacks.total(), self._clock.monotonic_ms()
        folder = self._folder / f"round-{number:03}"
        outcome = "FAILED"
        try:
            self._play(folder, cells, may_go_on)
            figures.rounds_exact += 1
            outcome = "output exact"
        except Interrupted:
            outcome = "interrupted"
            raise
        except Exception as error:  # noqa: BLE001 - it is what the campaign is for
            what = f"round {number}, {self._cell}: {type(error).__name__}: {error}"
            figures.failures.append(what)
            self._say(f"FAILED: {what}")
        finally:
            seconds = (self._clock.monotonic_ms() - began_ms) / 1000
            count = figures.attacks.total() - attacks
            self._say(f"round {number}: {outcome}, {count} attacks, {seconds:.0f} s")
            if outcome != "FAILED":  # What was there when something went wrong is kept.
                shutil.rmtree(folder)

    def _play(self, folder: Path, cells: Sequence[Cell], may_go_on: Callable[[], bool]) -> None:
        self._cell = None
        stream = AttackedStream(folder, self._rows, self._interrupt)
        try:
            attacker = self._attacker(stream, cells)
            for self._cell in cells:
                if not may_go_on():
                    break
                self._say(f"round {self.figures.rounds}: {self._cell}")
                attacker.attack(self._cell)
            self._finish(stream, attacker)
        finally:
            stream.close()

    def _attacker(self, stream: AttackedStream, cells: Sequence[Cell]) -> Attacker:
        sensor = Sensor(stream.store, self._clock, self.figures.decisions)
        parts = (stream, sensor, self.figures, self._chance)
        if not any(cell.kind.is_of_dagster for cell in cells):
            return Attacker(*parts)
        return DagsterAttacker(*parts, services=DagsterServices(stream.folder))

    def _finish(self, stream: AttackedStream, attacker: Attacker) -> None:
        attacker.leave_alone()
        stream.pauses.release()
        if stream.driver is not None:
            attacker.end(stream.driver)
        last = stream.start(rows_per_second=FAST)
        stream.wait("the end of the input", lambda: last.has_ended)
        if last.process.returncode != 0 or last.newest("finished") is None:
            raise CampaignError(f"the job did not finish; {stream.said()}")
        self.figures.generations += len(stream.store.generations.summaries())
        self.figures.checkpoints += sum(driver.completed() for driver in stream.drivers)
        expect_exact(stream)
        expect_one_writer(stream.store)


def expect_exact(stream: AttackedStream) -> None:
    """The output is that of an undisturbed run, also for a reader who knows nothing of commits."""
    expected = stream.job.expected()
    for who, rows in (("committed", stream.job.committed()), ("visible", stream.job.visible())):
        if rows != expected:
            lost = sum(row not in rows for row in expected[:500])
            raise CampaignError(
                f"the {who} output has {len(rows)} rows instead of {len(expected)}; of the first "
                f"500 expected {lost} are not there"
            )


def expect_one_writer(store: CheckpointStore) -> None:
    """Ids of checkpoints rise with the generations, what is kept verifies, the last is no zombie's.

    A generation that completed a checkpoint after its successor had begun would break the order.
    """
    records = [store.attempts.read_outcome(number) for number in store.attempts.ended_ids()]
    completed = [r for r in records if r is not None and r.outcome == "completed"]
    generations = [record.generation for record in sorted(completed, key=lambda r: r.checkpoint_id)]
    if generations != sorted(generations):
        raise CampaignError(f"an older generation completed checkpoints later: {generations}")
    for number in store.manifests.ids():
        if problem := store.verify(number).problem:
            raise CampaignError(f"checkpoint {number} is damaged: {problem}")
