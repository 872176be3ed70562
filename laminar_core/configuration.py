"""The options of a run, in a model for each concern, and the file ``laminar.toml``.

The command line, the environment, the file, Dagster's ``StreamSpec`` and the Python API share these
models; ``docs/configuration.md`` lists their fields. Options of one start, such as the checkpoint
to go back to, are not in ``Configuration``, because a file or a variable would repeat them at every
start.
"""

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from laminar_core.codec.envelope import Compression
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.start_texts import Rename, ResetFrom
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.addresses import Listening, Ports, TransportKind, is_unspecified, no_address
from laminar_core.options import NONE, Flag, Options, Setting, problem_of, sections_of, settings_of
from laminar_core.plan.state_options import (
    MEMORY_BYTES_MIN,
    BackendName,
    SnapshotMode,
    StateOptions,
)
from laminar_core.protocol.unaligned import UnalignedCheckpointConfig
from laminar_core.retention.config import RetentionConfig
from laminar_core.spark.conditions import master_of, refuse_unsuitable
from laminar_core.spark.facts import SparkFacts
from laminar_core.state.segment_chain import SEGMENTS_MAX
from laminar_core.units import (
    Duration,
    Instant,
    Size,
    duration_ms,
    size_bytes,
)

FILE_NAME = "laminar.toml"
"""Read if it is in the working directory and no other file is named."""

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65_535)]
_A_DURATION = TypeAdapter[str | timedelta](Duration)

MaybeDuration = Annotated[Duration | None, NONE]
MaybeCompression = Annotated[Compression | None, NONE]
MaybeText = Annotated[str | None, NONE]


def _alignment(value: object) -> str | timedelta:
    if value in ("aligned", "unaligned"):
        return str(value)
    try:
        return _A_DURATION.validate_python(value)
    except ValidationError as error:
        problem = f"{value!r} is none of aligned, unaligned and a duration such as 5s"
        raise ValueError(problem) from error


def _at_least(least: str | int, measure: Any) -> AfterValidator:  # noqa: ANN401 - a function
    def validate(value: str | int) -> str | int:
        if measure(value) < measure(least):
            raise ValueError(f"must be at least {least}, not {value}")
        return value

    return AfterValidator(validate)


def _http_endpoint(value: str | None) -> str | None:
    if value is not None and not value.startswith(("http://", "https://")):
        raise ValueError(f"must begin with http:// or https://, not {value!r}; gRPC is not spoken")
    try:
        is_url = value is None or bool(urlsplit(value).hostname and urlsplit(value).port != 0)
    except ValueError:  # Of a bracket without its other one, or a port beyond 65535.
        is_url = False
    if not is_url:
        raise ValueError("must have a host and may have a port, as http://localhost:4318 does")
    return value


def _advertised(value: str | None) -> str | None:
    if value is not None and is_unspecified(value):
        raise ValueError(no_address(value))
    return value


def _ports(value: str | None) -> str | None:
    return None if value is None else str(Ports.parse(value))


def _settings_of_spark(value: object) -> object:
    """Accept numbers and booleans of TOML; an error names no value, which may be a secret."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, object]", value)
    if wrong := [n for n, each in given.items() if not isinstance(each, str | int | float)]:
        raise ValueError(
            f"{wrong[0]} must be a text, a number, true or false: put a name with dots in quotes, "
            'as in "spark.executor.memory"'
        )
    return {
        name: str(each).lower() if isinstance(each, bool) else str(each)
        for name, each in given.items()
    }


class CheckpointOptions(Options):
    """When checkpoints are taken, and how much they may cost."""

    interval: Annotated[MaybeDuration, Flag("--checkpoint-interval")] = "10 seconds"
    """Time between two triggers; none: only the last checkpoint is taken."""
    timeout: Annotated[Duration, Flag("--checkpoint-timeout")] = "10 minutes"
    """A checkpoint that takes longer expires; the job continues."""
    sync_timeout: MaybeDuration = "10 seconds"
    """Longest pause of a worker while it takes its snapshot; a checkpoint that needs a longer one
    is given up; none: no limit.
    """
    min_pause: MaybeDuration = None
    """Shortest time between the end of a checkpoint and the next trigger."""
    max_concurrent: Annotated[Positive, Flag("--max-concurrent-checkpoints")] = 1
    """Checkpoints that may be pending at the same time; more than 1 needs --aligned."""
    max_uncommitted: Annotated[Positive | None, NONE] = 10
    """Completed checkpoints whose output may wait for its commit; with more, sources pause; none:
    any number.
    """
    tolerable_failures: Annotated[Count | None, NONE] = 3
    """Number of failed checkpoints in a row that do not fail the job; none: any number."""
    alignment: Annotated[
        str | timedelta,
        PlainValidator(_alignment),
        Flag(
            "--alignment",
            ("--alignment-timeout",),
            {"--aligned": "aligned", "--unaligned": "unaligned"},
        ),
    ] = Field(default="30 seconds", validation_alias=AliasChoices("alignment", "alignment_timeout"))
    """Time after the trigger of a checkpoint at which its barriers overtake queued rows; unaligned:
    they overtake from the start; aligned: they never overtake.
    """
    max_inflight: Annotated[Size, _at_least(1, size_bytes)] = "512MiB"
    """Limit of serialised in-flight data per queue; a checkpoint that would exceed it is given
    up.
    """
    inflight_compression: MaybeCompression = None
    """Compression of in-flight data in the store."""
    scrub_rate: Size = Field(
        default="1MiB", validation_alias=AliasChoices("scrub_rate", "scrub_bytes_per_second")
    )
    """Bytes of the newest checkpoint's files that the running job reads again each second, to
    detect damage while the state is still in memory; 0: none.
    """

    @model_validator(mode="before")
    @classmethod
    def _no_alignment_is_the_default(cls, fields: Any) -> Any:  # noqa: ANN401 - as pydantic's
        """Accept None, which definitions in Dagster could give."""
        if not isinstance(fields, dict):
            return fields
        given = cast("dict[str, Any]", fields)
        unset = {n for n in ("alignment", "alignment_timeout") if given.get(n, n) is None}
        return {name: value for name, value in given.items() if name not in unset}

    @model_validator(mode="after")
    def _checkpoints_that_overtake_do_not_overlap(self) -> Self:
        if self.max_concurrent > 1 and self.overtaking().alignment_timeout_ms is not None:
            raise ValueError(
                "checkpoints that may turn unaligned cannot overlap: set max_concurrent to 1, or "
                "alignment to aligned"
            )
        return self

    def overtaking(self) -> UnalignedCheckpointConfig:
        """Return when barriers overtake, in milliseconds, and the limit of what they pass."""
        fixed = self.alignment in ("aligned", "unaligned")
        threshold = {} if fixed else {"alignment_timeout_threshold_ms": duration_ms(self.alignment)}
        return UnalignedCheckpointConfig(
            enabled=self.alignment != "aligned",
            force_unaligned=self.alignment == "unaligned",
            max_inflight_buffer_bytes=size_bytes(self.max_inflight),
            **threshold,
        )


class CheckpointsSection(CheckpointOptions):
    """When checkpoints are taken, how much they may cost, and how many are kept."""

    keep_last: Annotated[
        Literal["default", "all"] | Positive, Flag(switches={"--keep-all": "all"})
    ] = "default"
    """Number of newest checkpoints that the running job keeps, whichever run completed them; all:
    it deletes none; default: it deletes only checkpoints of runs with this default, and keeps the
    last 10 and the newest of each of 24 hours and 7 days.
    """

    @property
    def retention(self) -> RetentionConfig | None:
        """The policy that the running job applies; None: it deletes nothing."""
        if isinstance(self.keep_last, int):
            return RetentionConfig(keep_last=self.keep_last, savepoints="like-others")
        return RetentionConfig.default() if self.keep_last == "default" else None


class StateConfig(Options):
    """How keyed state is kept, and what a checkpoint writes of it. May change at every start."""

    snapshots: SnapshotMode = "incremental"
    """The contents of a checkpoint. full: the full state. incremental: what changed since the last
    checkpoint. changelog: what changed since the last upload; changes are uploaded all the time.
    """
    changelog_interval: Duration = "1 second"
    """Time between two uploads, with changelog."""
    segments_max: Annotated[int, Field(ge=2)] = SEGMENTS_MAX
    """Largest number of files with the state of one operator in one worker; if there are more,
    they are merged in the background.
    """
    compression: Annotated[MaybeCompression, Flag("--state-compression")] = None
    """Compression of state in the store."""
    backend: Annotated[BackendName, Flag("--state-backend")] = "memory"
    """Where the running job keeps the rows of state: in memory, or on disk with rocksdb, where
    they may be larger than memory.
    """
    memory: Annotated[
        Size, _at_least(f"{MEMORY_BYTES_MIN >> 20}MiB", size_bytes), Flag("--state-memory")
    ] = Field(default="256MiB", validation_alias=AliasChoices("memory", "memory_bytes"))
    """Memory per worker for rocksdb: its buffers, and rows that are collected and merged."""
    directory: Annotated[MaybeText, Flag("--state-directory")] = None
    """Folder for the working files of rocksdb, on a local disk; none: Spark's local folders."""

    def options(self) -> StateOptions:
        """Return the options for the runtime."""
        return StateOptions(
            snapshots=self.snapshots,
            changelog_interval_ms=duration_ms(self.changelog_interval),
            segments_max=self.segments_max,
            compression=self.compression,
            backend=self.backend,
            memory_bytes=size_bytes(self.memory),
            directory=self.directory,
        )


class SupervisionOptions(Options):
    """When a worker counts as lost, how long the job may be down, and where savepoints may go."""

    start_timeout: Duration = "2 minutes"
    """Workers that have not restored their state after this time are started again."""
    connect_timeout: Duration = "20 seconds"
    """Workers that do not all reach each other within this time are started again."""
    silence_timeout: Annotated[Duration, _at_least("3 seconds", duration_ms)] = "30 seconds"
    """A worker counts as dead if the driver has received nothing from it for this time."""
    progress_timeout: Duration = "30 minutes"
    """A worker that needs longer for one batch counts as hung, and the job is restarted."""
    link_timeout: Annotated[Duration, _at_least("3 seconds", duration_ms)] = "30 seconds"
    """A connection between two workers may be away for this time; then the job is restarted."""
    standby_timeout: Annotated[Duration, _at_least("5 seconds", duration_ms)] = "10 seconds"
    """A standby takes the job over from a driver on another host whose heartbeat has not changed
    for this time. One on its own host it takes over as soon as that process is gone.
    """
    longest_outage: MaybeDuration = None
    """Time for which the job may be down without losing output. A start is refused if a sink cannot
    keep output for so long, for example because its transactions expire; none: the start only
    reports how long it can.
    """
    savepoints_under: tuple[str, ...] = Field(default=(), strict=False)
    """Directories and buckets in which the driver may write the savepoints that commands ask for;
    by default the place of the store, and the driver's working directory.
    """

    def worker_deadlines(self) -> Deadlines:
        """Return how long workers may take, in milliseconds."""
        return Deadlines(
            register_ms=duration_ms(self.start_timeout),
            connect_ms=duration_ms(self.connect_timeout),
            silence_ms=duration_ms(self.silence_timeout),
            progress_ms=duration_ms(self.progress_timeout),
            link_ms=duration_ms(self.link_timeout),
        )


class RecoveryOptions(SupervisionOptions):
    """When a worker counts as lost, how often the job is restarted, and where savepoints may go."""

    restarts: Count = 10
    """Number of times that the driver restarts the job after failures in a row."""

    @property
    def restart(self) -> ExponentialDelay:
        """How the driver restarts a job that failed."""
        return ExponentialDelay(attempts=self.restarts)


class NetworkOptions(Options):
    """How workers talk to each other."""

    transport: Literal["auto", TransportKind] = "auto"
    """How workers connect. auto: Unix sockets (ipc) with a local master, otherwise encrypted and
    authenticated TCP (curve). tcp: neither encrypted nor authenticated. On a cluster, workers that
    share a host exchange rows through Unix sockets with any of them.
    """
    require_encryption: bool = False
    """Refuse to start if others on the network could read the rows or the workers' key."""
    bind_address: MaybeText = None
    """Address at which driver and workers listen, or a network such as 10.0.0.0/8: each host's own
    address in it; none: spark.driver.bindAddress for the driver, and the address of its host name
    for a worker.
    """
    advertised_address: Annotated[MaybeText, AfterValidator(_advertised)] = None
    """Address or name at which workers reach the driver; none: spark.driver.host."""
    ports: Annotated[MaybeText, AfterValidator(_ports)] = None
    """Ports at which driver and workers listen, such as 41000-41099; none: any free port."""
    receive_memory: Annotated[Size, _at_least("1MiB", size_bytes)] = "256MiB"
    """Memory of each worker for rows that others have sent and it has not taken yet, divided evenly
    among its channels. One batch per channel may go beyond it.
    """

    @property
    def listening(self) -> Listening:
        """Where driver and workers listen; the advertised address is the driver's."""
        return Listening(
            bind=self.bind_address or "",
            advertised=self.advertised_address or "",
            ports=None if self.ports is None else Ports.parse(self.ports),
        )


class MetricsOptions(Options):
    """Where a running job shows its metrics. Needs the extra ``metrics``."""

    prometheus_port: Annotated[Port | None, NONE] = None
    """Port on which the driver serves metrics to Prometheus; 0: any free one; none: it serves
    none.
    """
    prometheus_address: str = "127.0.0.1"
    """Address on which it does; 0.0.0.0: all of this machine. Anyone who reaches it can read the
    metrics.
    """
    otlp_endpoint: Annotated[MaybeText, AfterValidator(_http_endpoint)] = None
    """URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://localhost:4318;
    none: nothing is sent.
    """
    otlp_interval: Annotated[Duration, _at_least("1 second", duration_ms)] = "10 seconds"
    """Time between two exports to it."""

    @property
    def is_on(self) -> bool:
        """Whether metrics are exported at all."""
        return self.prometheus_port is not None or self.otlp_endpoint is not None


class SparkOptions(Options):
    """Where the workers run."""

    master: MaybeText = None
    """Spark master; none: local[N], with N workers."""
    conf: Annotated[dict[str, str], BeforeValidator(_settings_of_spark)] = Field(
        default_factory=dict
    )
    """Settings of Spark."""
    ship: bool = False
    """Send Laminar, and the modules beside the program, to the workers' hosts, which need not have
    them. What is compiled, such as pyarrow, numpy and pyzmq, has to be there.
    """

    def master_for(self, workers: int) -> str:
        """Return the master that was asked for, by option or by setting, or this host.

        Raises:
            ConfigurationError: the two differ, or such a Spark could not run the workers.
        """
        master = master_of(self.master, self.conf) or f"local[{workers}]"
        refuse_unsuitable(SparkFacts(master, self.conf), workers)
        return master


class StartOptions(Options):
    """The checkpoint or savepoint that one start continues from, and what it may give up."""

    restore_id: Annotated[Positive | None, Flag("--restore")] = None
    """Go back to this checkpoint; output that came after it is withdrawn."""
    restore_before: Annotated[Instant | None, Flag(also=("--before",))] = None
    """Go back to the newest checkpoint completed before this time (ISO 8601 with a zone)."""
    from_savepoint: str | None = None
    """Start from the savepoint at this URI. With a savepoint of this job, the job goes back to it;
    one of another job needs a new --job.
    """
    claim: bool = False
    """Delete the savepoint when a checkpoint of the job has completed; otherwise it stays."""
    take_over: bool = False
    """Start even if the job's driver may be alive; that driver is fenced."""
    expected_generation: Annotated[Count | None, Flag("--expect-generation")] = None
    """Start only if this is the newest generation of the job (0: the job never ran). If several
    starts expect the same generation, only one succeeds.
    """
    allow_fresh: bool = False
    """If checkpoints exist and none can be used, start without state and withdraw the output."""
    reset_state: tuple[str, ...] = Field(default=(), strict=False)
    """Drop all state, read all sources from their beginning and withdraw earlier output, because
    this operator was changed or removed.
    """
    reset_from: tuple[str, ...] = Field(default=(), strict=False)
    """Reset only what hangs together with the operators of reset_state, and continue the rest: say
    SOURCE=beginning of each source of that part, or where else to begin: of Kafka earliest, latest,
    a time or offsets. Needs --reason.
    """
    skip_bad: tuple[str, ...] = Field(default=(), strict=False)
    """Leave out one message, as SOURCE:SPLIT:OFFSET; the error line shows it."""
    accept: tuple[str, ...] = Field(default=(), strict=False)
    """Accept a loss, a doubt or a repetition that would otherwise prevent this start:
    sink-lost:NAME, sink-doubt:NAME=committed|not, sink-repeat:NAME,
    source-gap:NAME=earliest|skip-split, source-drop:NAME, state-drop:NAME, state-since:NAME,
    lookup-change:NAME. Needs --reason, and is recorded in the audit log.
    """
    rename: tuple[str, ...] = Field(default=(), strict=False)
    """Continue with the state that an operator or source kept under another name, as OLD=NEW; or
    with a column of its state and input, as OPERATOR.OLD=NEW. May stay: it does nothing once a
    checkpoint has the new name.
    """

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> Self:
        goes_back = self.restore_id is not None or self.restore_before is not None
        if self.from_savepoint is not None and (goes_back or self.allow_fresh):
            raise ValueError(
                "from_savepoint cannot be combined with restore_id, restore_before or allow_fresh: "
                "leave out one or the other"
            )
        if self.reset_state and (goes_back or self.from_savepoint):
            raise ValueError(
                "reset_state drops all state: leave out restore_id, restore_before and "
                "from_savepoint, or reset_state"
            )
        if self.reset_from and not self.reset_state:
            raise ValueError("reset_from says how much reset_state resets: give both")
        for text, parse in (
            *((text, parse_acceptance) for text in self.accept),
            *((text, Rename.parse) for text in self.rename),
            *((text, ResetFrom.parse) for text in self.reset_from),
        ):
            try:
                parse(text)
            except ConfigurationError as error:
                raise ValueError(str(error)) from error
        if self.claim and self.from_savepoint is None:
            raise ValueError("only a savepoint can be claimed: give from_savepoint")
        if self.restore_id is not None and self.restore_before is not None:
            raise ValueError("restore_id and restore_before both say which checkpoint: give one")
        return self


class JobSections(BaseModel):
    """The options that ``laminar.toml`` and a stream in Dagster share."""

    model_config = ConfigDict(use_attribute_docstrings=True, defer_build=True)

    workers: Positive = 2
    """Number of workers, which are Spark tasks that run at the same time; it may differ from
    earlier runs.
    """
    checkpoints: CheckpointsSection = CheckpointsSection()
    state: StateConfig = StateConfig()
    recovery: RecoveryOptions = RecoveryOptions()
    network: NetworkOptions = NetworkOptions()
    spark: SparkOptions = SparkOptions()
    metrics: MetricsOptions = MetricsOptions()
    retention: RetentionConfig = RetentionConfig()


class Configuration(Options, JobSections):
    """Everything that ``laminar.toml`` may set."""

    store: str | None = None
    """Directory or URI of the checkpoint store."""
    job: str | None = None
    """Name of the job in the store; by default the pipeline's."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a ``laminar.toml``.

        Raises:
            ConfigurationError: it cannot be read, or an option is unknown or not allowed; the
                message names file and key.
        """
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        except OSError as error:
            raise ConfigurationError(
                ErrorCode.NO_SUCH_PATH, f"{path} cannot be read: {error.strerror}"
            ) from error
        except ValidationError as error:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"{path}: {problem_of(error, cls)}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(ErrorCode.INVALID_OPTION, f"{path}: {error}") from error


def all_settings() -> list[Setting]:
    """Return every option of ``Configuration``, in the order of its fields."""
    found = settings_of(Configuration)
    for section, model in sections_of(Configuration).items():
        found += settings_of(model, section, "retention_" if section == "retention" else "")
    return found
