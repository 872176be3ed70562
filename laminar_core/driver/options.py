"""How a job is run, and how it ended."""

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from laminar_core.codec.arrow import Compression
from laminar_core.driver.liveness import Deadlines
from laminar_core.driver.restart import ExponentialDelay, RestartStrategy
from laminar_core.driver.scrub import SCRUB_BYTES_PER_SECOND
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.recovery_facts import Wish
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import LAMINAR, Actor
from laminar_core.records.record import JsonObject
from laminar_core.worker.inflight import SnapshotLimits


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a plan is run. ``pipeline.run`` fills this in."""

    job: str
    store_uri: str
    parallelism: int
    checkpoint: CoordinatorConfig
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    inflight_compression: Compression | None = None
    state: StateOptions = field(default_factory=StateOptions)
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    """How much of the newest checkpoint's files is read again in the background; 0: nothing."""
    restart: RestartStrategy = field(default_factory=ExponentialDelay)
    take_over: bool = False
    """Claim the job although its driver may be alive."""
    expected_generation: Generation | None = None
    """Claim the job only if this is the newest generation that it ever had; 0: it had none."""
    allow_fresh: bool = False
    """Start empty although checkpoints exist, if none of them can be used."""
    reset_state: tuple[str, ...] = ()
    """Operators because of which all state is dropped and all sources start anew."""
    restore_id: CheckpointId | None = None
    """Continue from this checkpoint instead of the newest; what came after it is left behind."""
    restore_before_ms: int | None = None
    """Continue from the newest checkpoint that was completed before this wall-clock time."""
    from_savepoint: str | None = None
    """Start from the savepoint at this URI."""
    claim_savepoint: bool = False
    """It is the job's from then on: deleted once a checkpoint builds on it."""
    default_retention: JsonObject | None = None
    """Of what this run completes, as its claims announce it; None: nothing is announced."""
    savepoints_under: tuple[str, ...] = ()
    """Where commands may send savepoints; see ``SavepointTargets``."""
    actor: Actor = LAMINAR
    """Who starts the job and why, for the claim and the audit log."""
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def wish(self) -> Wish:
        """What was asked for about the checkpoint to continue from."""
        return Wish(self.restore_id, self.restore_before_ms, allow_fresh=self.allow_fresh)


@dataclass(frozen=True, slots=True)
class JobResult:
    """How the job ended. Row counts are totals over its whole history."""

    outcome: Literal["finished", "stopped"]
    rows_in: int
    rows_out: int
    rows_late: int
    checkpoints: int
    """Completed by this run, over all its generations."""
    generations: int
    """Executions that this run needed."""
    collected: dict[str, pa.Table]
    """What ``CollectSink`` gathered, by sink name."""
