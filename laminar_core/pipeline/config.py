"""The configuration of a run."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from laminar_core.codec.arrow import Compression
from laminar_core.driver.liveness import Deadlines
from laminar_core.driver.options import JobOptions
from laminar_core.driver.restart import ExponentialDelay, RestartStrategy
from laminar_core.driver.scrub import SCRUB_BYTES_PER_SECOND
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.transport import TransportKind
from laminar_core.pipeline.state_config import StateConfig
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.protocol.unaligned import UnalignedCheckpointConfig
from laminar_core.records.actor import LAMINAR, Actor
from laminar_core.retention.config import RetentionConfig
from laminar_core.units import Duration, duration_ms
from laminar_core.worker.inflight import SnapshotLimits


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Where checkpoints are stored and when they are taken. Durations as in ``"30 seconds"``."""

    store: str
    """A directory that driver and workers share, or a URI such as ``s3://bucket/checkpoints``."""
    interval: Duration | None = "10 seconds"
    """Between two triggers; None takes only the last one."""
    min_pause: Duration | None = None
    """Between the end of one checkpoint and the next trigger."""
    timeout: Duration = "10 minutes"
    """A checkpoint that takes longer expires; the job continues."""
    max_concurrent: int = 1
    tolerable_failures: int | None = 3
    """Failed checkpoints in a row that the job survives; None: any number."""
    unaligned: UnalignedCheckpointConfig = field(default_factory=UnalignedCheckpointConfig)
    """When barriers overtake data, and how much in-flight data a checkpoint may then contain."""
    inflight_compression: Compression | None = None
    """Compression of in-flight data in the store."""
    state: StateConfig = field(default_factory=StateConfig)
    """Storage of keyed state, and the way it is checkpointed."""
    retention: RetentionConfig | None = None
    """The checkpoints to keep while the job runs; None: all."""
    sync_timeout: Duration | None = "10 seconds"
    """The pause of one worker at a cut; if it is longer the checkpoint is given up. None: any."""
    scrub_bytes_per_second: int = SCRUB_BYTES_PER_SECOND
    """Rate at which files of the newest checkpoint are read again in the background, to detect
    damage while the state is still in memory; 0: none.
    """
    guarantee: Literal["exactly-once"] = "exactly-once"
    """The guarantee for state. Unaligned checkpoints require exactly-once, the only one
    (FLINK-18403).
    """

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before anything is started.

        Raises:
            ConfigurationError: a value is out of range, or two of them contradict each other.
        """
        if self.guarantee != "exactly-once":
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"Laminar's state is always exactly-once, guarantee={self.guarantee!r} is not "
                "possible: leave it out; aligned checkpoints that wait long may turn unaligned",
            )
        if self.inflight_compression not in (None, *get_args(Compression)):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"inflight_compression is None, 'lz4' or 'zstd', not {self.inflight_compression!r}",
            )
        if self.scrub_bytes_per_second < 0:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "scrub_bytes_per_second must be 0 (nothing is read again) or positive, got "
                f"{self.scrub_bytes_per_second}",
            )
        if self.max_concurrent > 1 and self.unaligned.alignment_timeout_ms is not None:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "checkpoints that may turn unaligned cannot overlap: set max_concurrent to 1, or "
                "unaligned to UnalignedCheckpointConfig(enabled=False)",
            )
        self.coordinator_config()
        self.snapshot_limits()

    def coordinator_config(self) -> CoordinatorConfig:
        """Return the settings of the coordinator, in milliseconds.

        Raises:
            ConfigurationError: a value is out of range.
        """
        return CoordinatorConfig(
            interval_ms=None if self.interval is None else duration_ms(self.interval),
            min_pause_ms=0 if self.min_pause is None else duration_ms(self.min_pause),
            timeout_ms=duration_ms(self.timeout),
            max_concurrent=self.max_concurrent,
            tolerable_failures=self.tolerable_failures,
            alignment_timeout_ms=self.unaligned.alignment_timeout_ms,
        )

    def snapshot_limits(self) -> SnapshotLimits:
        """Return the limits of one subtask's snapshot.

        Raises:
            ConfigurationError: a value is out of range.
        """
        return SnapshotLimits(
            max_inflight_buffer_bytes=self.unaligned.max_inflight_buffer_bytes,
            sync_timeout_ms=None if self.sync_timeout is None else duration_ms(self.sync_timeout),
        )


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything about a run that is not about checkpoints."""

    workers: int | None = None
    """Number of Spark tasks; by default as many as Spark runs at once."""
    job: str | None = None
    """Name of the job in the store; by default the pipeline's."""
    restart: RestartStrategy = field(default_factory=ExponentialDelay)
    transport: TransportKind | Literal["auto"] = "auto"
    """``auto``: unix sockets with a local master, else TCP with CURVE."""
    require_encryption: bool = False
    """Refuse an unencrypted cluster, whose network could read the workers' data and their key."""
    take_over: bool = False
    """Run although a driver that owns the job may be alive; it is fenced."""
    expected_generation: int | None = None
    """Start only if this is the newest generation that ever owned the job (0: none did). Of several
    that expect the same one starts."""
    allow_fresh: bool = False
    """Start empty, and withdraw the output, if checkpoints exist and none can be used."""
    reset_state: tuple[str, ...] = ()
    """Drop all state and read all sources from their beginning, because these operators have
    changed or are gone; output of the past is withdrawn."""
    restore_id: int | None = None
    """Go back to this checkpoint; what came after it is withdrawn."""
    restore_before: str | None = None
    """Go back to the newest checkpoint that was completed before this time: ISO 8601 with a zone,
    as in ``"2026-03-01T12:00:00Z"``; what came after it is withdrawn."""
    from_savepoint: str | None = None
    """Start from the savepoint at this URI; nothing else is restored, and it is only read."""
    claim: bool = False
    """The savepoint is the job's: it is deleted once a checkpoint builds on it."""
    savepoints_under: tuple[str, ...] = ()
    """Directories and buckets below which commands may have savepoints written. By default: the
    directory that the store is in, or its bucket, and the directory that the driver runs in."""
    actor: Actor = LAMINAR
    """Who starts the job and why, for the claim and the audit log."""
    deadlines: Deadlines = field(default_factory=Deadlines)

    def __post_init__(self) -> None:
        """Refuse contradicting options.

        Raises:
            ConfigurationError: a checkpoint and a time, or an invalid time; a savepoint and another
                start; an invalid number of a generation.
        """
        if self.expected_generation is not None and self.expected_generation < 0:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"a generation is a number from 1, 0 is none: not {self.expected_generation}",
            )
        others = self.restore_id is not None or self.restore_before is not None or self.allow_fresh
        if self.from_savepoint is not None and others:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "a savepoint is a start of its own: leave restore_id, restore_before and "
                "allow_fresh away, or from_savepoint",
            )
        if self.reset_state and (self.from_savepoint or self.restore_id or self.restore_before):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "reset_state drops all state: leave restore_id, restore_before and from_savepoint "
                "away, or reset_state",
            )
        if self.claim and self.from_savepoint is None:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, "only a savepoint can be claimed: give from_savepoint"
            )
        if self.restore_before is not None:
            instant_ms(self.restore_before)
            if self.restore_id is not None:
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION,
                    "restore_id and restore_before both say which checkpoint: give one of them",
                )

    @property
    def restore_before_ms(self) -> int | None:
        """The time in milliseconds since 1970."""
        return None if self.restore_before is None else instant_ms(self.restore_before)


def job_options(
    name: str, workers: int, checkpoint: CheckpointConfig, run: RunConfig
) -> JobOptions:
    """Return the options for the driver; ``name`` is the pipeline's."""
    return JobOptions(
        job=run.job or name,
        store_uri=checkpoint.store,
        parallelism=workers,
        checkpoint=checkpoint.coordinator_config(),
        limits=checkpoint.snapshot_limits(),
        inflight_compression=checkpoint.inflight_compression,
        state=checkpoint.state.options(),
        scrub_bytes_per_second=checkpoint.scrub_bytes_per_second,
        restart=run.restart,
        take_over=run.take_over,
        expected_generation=_generation(run.expected_generation),
        allow_fresh=run.allow_fresh,
        reset_state=run.reset_state,
        restore_id=None if run.restore_id is None else CheckpointId(run.restore_id),
        restore_before_ms=run.restore_before_ms,
        from_savepoint=run.from_savepoint,
        savepoints_under=run.savepoints_under,
        default_retention=checkpoint.retention and checkpoint.retention.announcement(),
        claim_savepoint=run.claim,
        actor=run.actor,
        deadlines=run.deadlines,
    )


def _generation(number: int | None) -> Generation | None:
    return None if number is None else Generation(number)


def instant_ms(text: str) -> int:
    """Return the milliseconds since 1970 of an ISO 8601 time with a zone.

    >>> instant_ms("1970-01-01T01:00:00+01:00")
    0

    Raises:
        ConfigurationError: it is none, or says no zone.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{text!r} is not a time: write it in ISO 8601 with a zone, as in 2026-03-01T12:00:00Z",
        )
    return int(instant.timestamp() * 1000)
