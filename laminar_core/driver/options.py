"""The options that the driver runs a job with, and the result that it returns."""

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from laminar_core.codec.envelope import Compression
from laminar_core.connectors.formats.bad_rows import SkippedMessage
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.recovery.acceptance import Acceptance
from laminar_core.driver.recovery.start_texts import ColumnRename, Rename, ResetFrom
from laminar_core.driver.restart import ExponentialDelay, RestartStrategy
from laminar_core.driver.scrub import SCRUB_BYTES_PER_SECOND
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import LAMINAR, Actor
from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals
from laminar_core.records.record import JsonObject
from laminar_core.worker.channels import RECEIVE_BYTES_MAX
from laminar_core.worker.inflight import SnapshotLimits


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of one run of a plan. ``pipeline.run`` derives them from its configuration."""

    job: str
    store_uri: str
    parallelism: int
    checkpoint: CoordinatorConfig
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    inflight_compression: Compression | None = None
    receive_bytes: int = RECEIVE_BYTES_MAX
    """Bytes that may be under way to a worker or queued there, of all its channels together."""
    state: StateOptions = field(default_factory=StateOptions)
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    """Bytes per second of the newest checkpoint's files to read again for damage; 0: none."""
    restart: RestartStrategy = field(default_factory=ExponentialDelay)
    take_over: bool = False
    """Claim the job even if its driver may be alive; that driver is fenced."""
    expected_generation: Generation | None = None
    """Claim the job only if this is its newest generation; 0: it must not have run before."""
    standby: bool = False
    """Follow the driver of ``expected_generation``, which was lost, unless it was asked to end the
    job."""
    allow_fresh: bool = False
    """Start empty if checkpoints exist but none of them can be used."""
    reset_state: tuple[str, ...] = ()
    """Changed operators; if there are any, all state is dropped and all sources start anew."""
    reset_from: tuple[ResetFrom, ...] = ()
    """Sources that are read again, so that only what hangs together is reset."""
    skip_bad: tuple[SkippedMessage, ...] = ()
    """Messages to leave out, whatever is wrong with them."""
    restore_id: CheckpointId | None = None
    """Continue from this checkpoint instead of the newest; later checkpoints become orphans."""
    restore_before_ms: int | None = None
    """Continue from the newest checkpoint that was completed before this wall-clock time."""
    accepted: tuple[Acceptance, ...] = ()
    """Losses, doubts and repetitions that a person accepts for this start."""
    renames: tuple[Rename | ColumnRename, ...] = ()
    """Operators, sources and columns that have another name in the checkpoint."""
    from_savepoint: str | None = None
    """Start from the savepoint at this URI."""
    claim_savepoint: bool = False
    """Take over ``from_savepoint``: delete it once a checkpoint builds on it."""
    longest_outage_ms: int | None = None
    """Time for which the job may be down without losing output; None: as long as sinks allow."""
    default_retention: JsonObject | None = None
    """Retention policy that the claims of this run announce for its checkpoints; None: none."""
    savepoints_under: tuple[str, ...] = ()
    """Directories and buckets below which commands may write; see ``SavepointTargets``."""
    actor: Actor = LAMINAR
    """Who starts the job, and why, as the claim and the audit log record it."""
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def restore_request(self) -> RestoreRequest:
        """Return which checkpoint the job is to continue from, as the recovery rules take it."""
        return RestoreRequest(self.restore_id, self.restore_before_ms, allow_fresh=self.allow_fresh)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job that ended. Row counts are totals over its whole history."""

    outcome: Literal["finished", "stopped"]
    rows_in: int
    rows_out: int
    rows_late: int
    checkpoints: int
    """Number of checkpoints that this run completed, over all its generations."""
    generations: int
    """Number of generations that this run needed: one, and one more for each restart."""
    collected: dict[str, pa.Table]
    """Rows that each ``CollectSink`` gathered, by sink name."""
    bad_rows: BadRowTotals = NO_BAD_ROWS
    """Messages of sources that were no rows, and what became of them."""
