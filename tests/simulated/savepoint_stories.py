"""A simulated job that takes a while, and commands for it."""

from dataclasses import dataclass, field
from pathlib import Path

from laminar_core.driver.events import DataFlowing
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import Action, ControlCommand, ControlResult, StopJob
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.command_log import ControlLog
from laminar_core.testing.jobs import (
    DELAY,
    Burden,
    Job,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

LONG_MS = 10**14
UNALIGNED = CoordinatorConfig(interval_ms=300, alignment_timeout_ms=0)
ALIGNED = CoordinatorConfig(interval_ms=300)


def slow_job(rows: int = 150, row_ms: float = 12) -> Job:
    """Takes some seconds of simulated time, most of them behind full queues."""
    tables = payments(3, rows)
    burden = Burden(row_ms)
    p = Pipeline("slow")
    source = p.source("in", MemorySource(tables, batch_rows=4))
    rows = source.watermark("ts", max_delay=DELAY).rebalance()
    slow = rows.map(burden.carry)
    return with_ledgers(p, {"out": (windowed(slow), totals(rows_of(tables)))}, burden)


@dataclass
class Story:
    """A simulated job, and commands for it."""

    checkpoint: CoordinatorConfig = ALIGNED
    seed: int = 0
    name: str = "simulated"
    job: Job = field(default_factory=slow_job)

    def __post_init__(self) -> None:
        self.simulation = Simulation(
            self.job.plan, seed=self.seed, checkpoint=self.checkpoint, job=self.name
        )
        self.job.burden.spend = self.simulation.world.spend
        self.log = ControlLog(self.simulation.store.objects, self.simulation.store.paths)

    def tell(self, action: Action, **changes: object) -> int:
        fields = {
            "command_id": f"command-{len(self.log.numbers())}",
            "job": self.name,
            "generation": self.simulation.store.claims.newest() or 1,
            "action": action,
            "actor": "ann",
            "actor_kind": ActorKind.PERSON,
            "reason": "a test",
            "requested_at_ms": 0,
            "expires_at_ms": LONG_MS,
        }
        return self.log.append(ControlCommand(**fields | changes))

    def at_start(self, *actions: Action) -> None:
        """Leave commands once data flows."""

        def leave() -> None:
            for action in actions:
                self.tell(action)

        self.simulation.when(DataFlowing, leave)

    def result(self, number: int = 1) -> ControlResult:
        found = self.log.result(number)
        assert found is not None
        return found

    def manifests(self) -> list[CheckpointManifest]:
        store = self.simulation.store
        return [store.manifests.read(n) for n in store.manifests.ids()]


def take(target: Path, checkpoint: CoordinatorConfig = ALIGNED, seed: int = 0) -> Story:
    """A job that was stopped with a savepoint."""
    story = Story(checkpoint, seed)
    story.at_start(StopJob(target=str(target)))
    assert story.simulation.run().outcome == "stopped"
    assert story.result().outcome == "completed", story.result()
    return story
