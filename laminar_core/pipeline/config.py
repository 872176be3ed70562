"""The configuration of a run in Python: models of ``configuration`` with further fields."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, InstanceOf, model_validator

from laminar_core.configuration import (
    CheckpointOptions,
    MetricsOptions,
    NetworkOptions,
    StartOptions,
    StateConfig,
    SupervisionOptions,
)
from laminar_core.connectors.formats.bad_rows import SkippedMessage
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.acceptance import Acceptance, parse_acceptance
from laminar_core.driver.recovery.start_texts import Rename, ResetFrom
from laminar_core.driver.restart import ExponentialDelay, RestartStrategy
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.protocol.unaligned import UnalignedCheckpointConfig
from laminar_core.records.actor import LAMINAR, Actor
from laminar_core.retention.config import RetentionConfig
from laminar_core.units import duration_ms, instant_ms, size_bytes
from laminar_core.worker.inflight import SnapshotLimits


class CheckpointConfig(CheckpointOptions):
    """Where checkpoints are stored, when they are taken, and how state is kept."""

    store: str = Field(kw_only=False)
    """A directory that driver and workers share, or a URI such as s3://bucket/checkpoints."""
    state: StateConfig = StateConfig()
    """Storage of keyed state, and the way it is checkpointed."""
    retention: RetentionConfig | None = None
    """The checkpoints to keep while the job runs; None: all."""
    unaligned: InstanceOf[UnalignedCheckpointConfig] | None = None
    """In place of alignment and max_inflight: both as numbers."""
    guarantee: Literal["exactly-once"] = "exactly-once"
    """The guarantee for state. Unaligned checkpoints require it, the only one (FLINK-18403)."""

    @model_validator(mode="after")
    def _says_once_when_barriers_overtake(self) -> Self:
        if self.unaligned and self.model_fields_set & {"alignment", "max_inflight"}:
            raise ValueError("unaligned replaces alignment and max_inflight: leave one of them out")
        return self

    def overtaking(self) -> UnalignedCheckpointConfig:
        """Return when barriers overtake, in milliseconds, and the limit of what they pass."""
        return self.unaligned or super().overtaking()

    def coordinator_config(self) -> CoordinatorConfig:
        """Return the settings of the coordinator, in milliseconds."""
        return CoordinatorConfig(
            interval_ms=None if self.interval is None else duration_ms(self.interval),
            min_pause_ms=0 if self.min_pause is None else duration_ms(self.min_pause),
            timeout_ms=duration_ms(self.timeout),
            max_concurrent=self.max_concurrent,
            max_uncommitted=self.max_uncommitted,
            tolerable_failures=self.tolerable_failures,
            alignment_timeout_ms=self.overtaking().alignment_timeout_ms,
        )

    def snapshot_limits(self) -> SnapshotLimits:
        """Return the limits of one subtask's snapshot."""
        return SnapshotLimits(
            max_inflight_buffer_bytes=self.overtaking().max_inflight_buffer_bytes,
            sync_timeout_ms=None if self.sync_timeout is None else duration_ms(self.sync_timeout),
        )


def _made(strategy: RestartStrategy) -> RestartStrategy:
    if isinstance(strategy, type):
        raise ValueError(f"is a class: pass {strategy.__name__}()")  # noqa: TRY004 - for pydantic
    return strategy


class RunConfig(StartOptions, NetworkOptions, SupervisionOptions):
    """Everything about a run that is not about checkpoints."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    metrics: MetricsOptions = MetricsOptions()
    """Where the job shows its metrics while it runs."""
    workers: int | None = None
    """Number of Spark tasks; by default as many as Spark runs at once."""
    job: str | None = None
    """Name of the job in the store; by default the pipeline's."""
    restart: Annotated[InstanceOf[RestartStrategy], AfterValidator(_made)] = ExponentialDelay()
    """When a job that failed is started again."""
    actor: InstanceOf[Actor] = LAMINAR
    """Who starts the job and why, for the claim and the audit log."""
    standby: bool = False
    """The driver of expected_generation was lost: continue the job, unless that driver had been
    asked to end it. `laminar run --standby` sets it when it takes a job over.
    """
    deadlines: InstanceOf[Deadlines] | None = None
    """In place of start_timeout, silence_timeout, progress_timeout and link_timeout: as numbers."""

    @model_validator(mode="after")
    def _says_once_how_long_workers_may_take(self) -> Self:
        timeouts = {"start_timeout", "silence_timeout", "progress_timeout", "link_timeout"}
        if self.deadlines and self.model_fields_set & timeouts:
            raise ValueError(
                "deadlines replaces start_timeout, silence_timeout, progress_timeout and "
                "link_timeout: leave one of them out"
            )
        return self

    def worker_deadlines(self) -> Deadlines:
        """Return how long workers may take, in milliseconds."""
        return self.deadlines or super().worker_deadlines()

    @model_validator(mode="after")
    def _a_standby_follows_a_generation(self) -> Self:
        if self.standby and not self.expected_generation:
            raise ValueError("standby follows a driver: give expected_generation")
        return self

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
        receive_bytes=size_bytes(run.receive_memory),
        state=checkpoint.state.options(),
        scrub_bytes_per_second=size_bytes(checkpoint.scrub_rate),
        restart=run.restart,
        take_over=run.take_over,
        expected_generation=_generation(run.expected_generation),
        standby=run.standby,
        allow_fresh=run.allow_fresh,
        reset_state=run.reset_state,
        reset_from=tuple(map(ResetFrom.parse, run.reset_from)),
        skip_bad=tuple(map(SkippedMessage.parse, run.skip_bad)),
        accepted=_accepted(run),
        renames=tuple(map(Rename.parse, run.rename)),
        restore_id=None if run.restore_id is None else CheckpointId(run.restore_id),
        restore_before_ms=run.restore_before_ms,
        from_savepoint=run.from_savepoint,
        longest_outage_ms=None if run.longest_outage is None else duration_ms(run.longest_outage),
        savepoints_under=run.savepoints_under,
        default_retention=checkpoint.retention and checkpoint.retention.announcement(),
        claim_savepoint=run.claim,
        actor=run.actor,
        deadlines=run.worker_deadlines(),
    )


def _accepted(run: RunConfig) -> tuple[Acceptance, ...]:
    """Return what this start accepts.

    Raises:
        ConfigurationError: something is accepted, and the actor gives no reason.
    """
    given = {"accept": run.accept, "reset_from": run.reset_from}
    what = [f"{name} {', '.join(values)}" for name, values in given.items() if values]
    if what and run.actor.reason in ("", LAMINAR.reason):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{' and '.join(what)} needs a reason for the audit log: say with --reason, "
            "or in RunConfig.actor, why it is right",
        )
    return tuple(dict.fromkeys(parse_acceptance(text) for text in run.accept))


def _generation(number: int | None) -> Generation | None:
    return None if number is None else Generation(number)
