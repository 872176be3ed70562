"""What a team writes to have a streaming job in Dagster. Nothing but checked values."""

import hashlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import dagster as dg
from pydantic import AfterValidator, Field, model_validator

from laminar_core.records.paths import check_job_name
from laminar_core.resources.values import Place, Values
from laminar_core.retention.config import RetentionConfig
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import DurationText, Size, accepted_by, duration_ms

_DAGSTER_NAME = re.compile(r"[A-Za-z0-9_]+")
_OWNER = re.compile(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s]+")


def _dagster_name(name: str) -> str:
    if not _DAGSTER_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r}: Dagster's names have letters, digits and _ only; a job that has another "
            "name goes on under a new one from a savepoint (laminar run --from-savepoint)"
        )
    return name


def _owner(owner: str) -> str:
    if not _OWNER.fullmatch(owner):
        raise ValueError("give an e-mail address, or team:NAME")
    return owner


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for tag in tags:
        if tag.startswith(("laminar/", "dagster/")):
            raise ValueError(f"{tag!r}: tags with this prefix have a meaning; take another one")
    _ask_dagster(lambda: dg.AssetSpec("asset", tags=tags))
    _ask_dagster(lambda: dg.JobDefinition(graph_def=dg.GraphDefinition("job"), tags=tags))
    return tags


def _kinds(kinds: frozenset[str]) -> frozenset[str]:
    _ask_dagster(lambda: dg.asset(name="totals", kinds=set(kinds | {"pyspark"}))(lambda: None))
    return kinds


def _ask_dagster(build: Callable[[], object]) -> None:
    """Refuse, with the first line of what it says, what Dagster would refuse at load."""
    try:
        build()
    except dg.DagsterInvalidDefinitionError as error:
        raise ValueError(str(error).strip().splitlines()[0]) from error


def _program(program: Path) -> Path:
    if not program.name:
        raise ValueError("give the file that has the function pipeline")
    return program


def _cron(text: str) -> str:
    try:
        dg.ScheduleDefinition(name="cron", job_name="cron", cron_schedule=text)
    except dg.DagsterInvalidDefinitionError as error:
        raise ValueError(
            f"{text!r} is not a time as in crontab(5): give five fields, or @hourly, @daily …"
        ) from error
    return text


Cron = Annotated[
    str, AfterValidator(_cron), Field(description="As in crontab(5), or @daily; None: never.")
]


class CheckpointPolicy(Values):
    """When checkpoints are taken and what they write; the options of ``laminar run``."""

    interval: DurationText = "10 seconds"
    timeout: DurationText = "10 minutes"
    min_pause: DurationText | None = None
    alignment: Literal["aligned", "unaligned"] | None = Field(
        default=None, description="Never, or from the start; None: after alignment_timeout."
    )
    alignment_timeout: DurationText | None = Field(
        default=None, description="None: 30 seconds. Not together with alignment."
    )
    snapshots: Literal["full", "incremental", "changelog"] = "incremental"
    state_backend: Literal["memory", "rocksdb"] = "memory"

    @model_validator(mode="after")
    def _says_once_when_barriers_overtake(self) -> Self:
        if self.alignment is not None and self.alignment_timeout is not None:
            raise ValueError(
                f"alignment={self.alignment!r} says when barriers overtake: leave it out, or "
                "alignment_timeout"
            )
        return self

    def words(self) -> list[str]:
        """The words of the command line that differ from its defaults, and the interval."""
        options = {
            "--checkpoint-interval": self.interval,
            "--checkpoint-timeout": self.timeout if self._is_set("timeout") else None,
            "--min-pause": self.min_pause,
            "--alignment-timeout": self.alignment_timeout,
            "--snapshots": self.snapshots if self._is_set("snapshots") else None,
            "--state-backend": self.state_backend if self._is_set("state_backend") else None,
        }
        words = [word for name, value in options.items() if value for word in (name, value)]
        words.append("--keep-all")  # The stream's own policy decides, and the schedule applies it.
        return words if self.alignment is None else [*words, f"--{self.alignment}"]

    def _is_set(self, name: str) -> bool:
        return getattr(self, name) != type(self).model_fields[name].default


class SchedulePolicy(Values):
    """When the stream's housekeeping runs, in UTC; None turns one off.

    ``enabled``: they are on as soon as Dagster loads them; else somebody turns them on in its UI.
    """

    enabled: bool = True

    retention: Cron | None = "17 * * * *"
    drill: Cron | None = "43 4 * * *"
    audit: Cron | None = "11 5 * * *"
    orphans: Cron | None = "29 5 * * 0"
    costs: Cron | None = "5 0 * * *"
    checks: Cron | None = "*/30 * * * *"


class PriceTable(Values):
    """What the provider of the store asks for, in ``currency``; the defaults are no offer."""

    currency: str = "USD"
    put_per_1000: Annotated[float, Field(ge=0)] = 0.005
    get_per_1000: Annotated[float, Field(ge=0)] = 0.0004
    gb_month: Annotated[float, Field(ge=0)] = 0.023


class StreamSpec(Values):
    """One streaming job as Dagster runs it. The store is a resource, shared by all of them.

    ``name`` is the job's name in the store and the prefix of its asset keys. ``arguments`` go to
    the pipeline function of ``program``. ``laminar`` is what starts the command line, if not this
    very Python.
    """

    name: Annotated[str, accepted_by(check_job_name), AfterValidator(_dagster_name)]
    program: Annotated[Path, AfterValidator(_program)]
    arguments: dict[str, str] = Field(default_factory=dict)
    workers: Annotated[int, Field(ge=1)] = 2
    launch: Literal["detached", "supervised"] = Field(
        default="detached",
        description="How recovery and the jobs start the driver: as a process of its own that "
        "survives Dagster, or inside the run.",
    )
    start_timeout: DurationText = Field(
        default="10 minutes",
        description="Until the workers run, which includes reading the checkpoint; a driver that "
        "is slower is ended.",
    )
    silence_timeout: DurationText | None = Field(
        default=None,
        description="A worker whose process sends no sign of life for so long is dead; None: 30 "
        "seconds.",
    )
    progress_timeout: DurationText | None = Field(
        default=None,
        description="A worker that needs longer than this for one batch hangs; None: 30 minutes.",
    )
    scrub_rate: Size | None = Field(
        default=None,
        description="Bytes a second of stored files that the job reads again, to find damage while "
        'it can still write them anew; "0": none; None: 1MiB.',
    )
    require_encryption: bool = Field(
        default=False,
        description="Refuse a cluster whose network could read the rows, or the key of the "
        "workers.",
    )
    checkpoints: CheckpointPolicy = CheckpointPolicy()
    retention: RetentionConfig = RetentionConfig()
    alerts: AlertPolicy = AlertPolicy()
    schedules: SchedulePolicy = SchedulePolicy()
    prices: PriceTable = PriceTable()
    stop_savepoints: Place | None = Field(
        default=None,
        description="Folder or URI: a supervised run that is terminated leaves a savepoint below "
        "it; None: its last checkpoint.",
    )
    spark_conf: dict[str, str] = Field(default_factory=dict)
    restarts_max: Annotated[int, Field(ge=0)] = 3
    owner: Annotated[str, AfterValidator(_owner)] = "team:streaming"
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(
        default_factory=dict, description="On every asset and job."
    )
    kinds: Annotated[frozenset[str], AfterValidator(_kinds)] = Field(
        default=frozenset({"parquet"}), description="Of the output, beside pyspark."
    )
    description: str = ""
    laminar: tuple[str, ...] = (sys.executable, "-m", "laminar_core.cli")

    @model_validator(mode="after")
    def _a_pause_between_checkpoints_is_no_standstill(self) -> Self:
        if duration_ms(self.checkpoints.interval) >= duration_ms(self.alerts.checkpoint_age_max):
            raise ValueError(
                f"alerts.checkpoint_age_max ({self.alerts.checkpoint_age_max}) must be longer than "
                f"checkpoints.interval ({self.checkpoints.interval}), or the job counts as stuck"
            )
        return self

    def command(self, store_uri: str, words: Sequence[str] = ()) -> list[str]:
        """What starts the driver; it writes one JSON object per event to standard output.

        ``words`` are further ones of ``laminar run``, such as ``--restore 42``.
        """
        safety = ["--require-encryption"] if self.require_encryption else []
        more = [
            *self._patience(),
            *safety,
            *self.checkpoints.words(),
            *self._scrub(),
            *self.conf_words(),
            *words,
        ]
        return [*self.laminar, "run", *self._job_words(store_uri, words), *more, "--json"]

    def _patience(self) -> list[str]:
        """What is the stream's own of how long its workers may take."""
        is_patient = "start_timeout" in self.model_fields_set
        options = {
            "--start-timeout": self.start_timeout if is_patient else None,
            "--silence-timeout": self.silence_timeout,
            "--progress-timeout": self.progress_timeout,
        }
        return [word for name, value in options.items() if value for word in (name, value)]

    def _scrub(self) -> list[str]:
        return [] if self.scrub_rate is None else ["--scrub-rate", str(self.scrub_rate)]

    def dry_run_command(self, store_uri: str, words: Sequence[str] = ()) -> list[str]:
        """What says, as one JSON object, what ``command`` with these words would continue from."""
        job_words = self._job_words(store_uri, words)
        return [*self.laminar, "recover", *job_words, *words, "--dry-run", "--json"]

    def target_words(self) -> list[str]:
        """The pipeline and its arguments, as every command takes them that builds it."""
        settings = [f"{name}={value}" for name, value in self.arguments.items()]
        return [str(self.program), *(word for each in settings for word in ("--set", each))]

    def _job_words(self, store_uri: str, words: Sequence[str]) -> list[str]:
        workers = () if "--workers" in words else ("--workers", str(self.workers))
        return [*self.target_words(), "--store", store_uri, "--job", self.name, *workers]

    def conf_words(self) -> list[str]:
        """Spark's settings."""
        return [word for k, v in self.spark_conf.items() for word in ("--conf", f"{k}={v}")]

    @property
    def code_version(self) -> str:
        """Changes when the program or its arguments do; the empty program is one that is gone."""
        program = self.program.read_bytes() if self.program.exists() else b""
        arguments = repr(sorted(self.arguments.items())).encode()
        return hashlib.sha256(program + arguments).hexdigest()[:12]
