"""A simulated job that can have other sources in each run."""

from dataclasses import dataclass, field, replace

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.testing.growing_source import GrowingSource
from laminar_core.testing.jobs import DELAY, Burden, normal, payments, rows_of, windowed
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.world import ProcessKilledError

ROWS = {"a": 60, "b": 62, "c": 64}
TABLES = {name: payments(4, rows, seed=n + 1) for n, (name, rows) in enumerate(ROWS.items())}
PACE = 80
"""Rows a second: a source lasts about 3 s, or 75 checkpoints."""


def positions(manifest: CheckpointManifest, source: str) -> list[str]:
    """Return the digests of a source's positions."""
    entries = [e for e in manifest.subtasks if e.operator_id == source]
    return [segment.sha256 for entry in entries for segment in entry.segments]


@dataclass
class Changing:
    """One job. Each run may have other sources than the run before."""

    seed: int = 0
    has_windows: bool = False
    is_growing: bool = False
    rebalances: bool = False
    checkpoint: CoordinatorConfig | None = None
    job: str = JOB
    ledger: Ledger = field(default_factory=Ledger)
    burden: Burden = field(default_factory=Burden)

    def __post_init__(self) -> None:
        self.simulation = Simulation(
            self.plan("a"),
            seed=self.seed,
            parallelism=1,
            checkpoint=self.checkpoint,
            job=self.job,
        )
        self.burden.spend = self.simulation.world.spend

    def plan(self, *names: str) -> Plan:
        """Return a plan with these sources; the first letter of a name says what it reads."""
        p = Pipeline("changing")
        kind = GrowingSource if self.is_growing else MemorySource
        first, *others = [
            p.source(name, kind(TABLES[name[0]]), rows_per_second=PACE).watermark(
                "ts", max_delay=DELAY, name=f"{name}-time"
            )
            for name in names
        ]
        if self.rebalances:
            first, *others = [s.rebalance() for s in (first, *others)]
        rows = first.union(*others, name="all").map(self.burden.carry, name="carry")
        result = windowed(rows) if self.has_windows else rows
        result.sink("out", LedgerSink(self.ledger, "out"))
        return p.plan()

    @property
    def completed(self) -> int:
        return sum(isinstance(e, CheckpointCompleted) for e in self.simulation.events)

    def start(self, *names: str, workers: int = 2) -> None:
        self.simulation.plan = self.plan(*names)
        self.simulation.options = replace(self.simulation.options, parallelism=workers)

    def run_and_stop(self, *names: str, workers: int = 2, kill: str = "") -> CheckpointManifest:
        """Run with these sources until the fourth checkpoint or a later one; return the last."""
        self.start(*names, workers=workers)
        kills = {
            "driver": self.simulation.kill_driver,
            "worker": lambda: self.simulation.kill_worker(0),
        }
        if kill:
            self.simulation.when(CheckpointCompleted, kills[kill], self.completed + 2)
        self.simulation.when(CheckpointCompleted, self.simulation.stop, self.completed + 4)
        assert self.simulation.run_to_end().outcome == "stopped"
        return self.newest()

    def run_and_kill(self, *names: str, workers: int = 2) -> None:
        """Run with these sources until the driver is killed, after its third checkpoint."""
        self.start(*names, workers=workers)
        self.simulation.when(CheckpointCompleted, self.simulation.kill_driver, self.completed + 3)
        with pytest.raises(ProcessKilledError):
            self.simulation.run()

    def newest(self) -> CheckpointManifest:
        manifests = self.simulation.store.manifests
        return manifests.read(manifests.ids()[-1])

    def finish(self, *names: str, workers: int = 2) -> int:
        """Run to the end; return how many rows were late."""
        self.start(*names, workers=workers)
        result = self.simulation.run_to_end()
        assert result.outcome == "finished"
        return result.rows_late

    def check(self, *names: str) -> None:
        expected = [row for name in names for row in rows_of(TABLES[name])]
        assert normal(self.ledger.rows()) == normal(expected)
