"""The description of a streaming job for Dagster: checked values, and nothing else."""

import hashlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import dagster as dg
from pydantic import AfterValidator, BaseModel, Field, model_validator

from laminar_core import configuration
from laminar_core.configuration import JobSections
from laminar_core.options import words_of
from laminar_core.plan.state_options import BackendName, SnapshotMode
from laminar_core.records.paths import check_job_name
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.resources.values import Late, Place, Values
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import accepted_by, duration_ms

_DAGSTER_NAME = re.compile(r"[A-Za-z0-9_]+")
_OWNER = re.compile(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s]+")


def _dagster_name(name: str) -> str:
    if not _DAGSTER_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r}: Dagster's names have letters, digits and _ only: to continue a job with "
            "another name, start it under a new name from a savepoint "
            "(laminar run --from-savepoint)"
        )
    return name


def _owner(owner: str) -> str:
    if not _OWNER.fullmatch(owner):
        raise ValueError("give an e-mail address, or team:NAME")
    return owner


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for tag in tags:
        if tag.startswith(("laminar/", "dagster/")):
            raise ValueError(
                f"{tag!r}: the prefixes laminar/ and dagster/ are reserved: choose another"
            )
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


def _word(argument: str) -> str:
    """A variable is read by the driver: its value is in no list of processes, and in no record."""
    return f"env:{argument.env_var_name}" if isinstance(argument, dg.EnvVar) else argument


def _refuse_variables(values: object, name: str) -> None:
    """Refuse what pydantic would take for a text, which is the variable's name.

    Raises:
        ValueError: there is one where it would not be read.
    """
    if isinstance(values, dg.EnvVar):
        raise ValueError(  # noqa: TRY004 - only of these pydantic makes errors of its own
            f"{name}: an EnvVar is read in arguments only: here take os.environ"
            f'["{values.env_var_name}"]'
        )
    if isinstance(values, dict):
        for key, value in cast("dict[str, object]", values).items():
            _refuse_variables(value, f"{name}.{key}".removeprefix("."))


Cron = Annotated[
    str, AfterValidator(_cron), Field(description="As in crontab(5), or @daily; None: never.")
]


_START_TIMEOUT_MS = 600_000
_MOVED = {
    "scrub_rate": ("checkpoints", "scrub_rate"),
    "start_timeout": ("recovery", "start_timeout"),
    "silence_timeout": ("recovery", "silence_timeout"),
    "progress_timeout": ("recovery", "progress_timeout"),
    "require_encryption": ("network", "require_encryption"),
    "spark_conf": ("spark", "conf"),
}
"""Older names of fields of a stream, and where they are now."""


class CheckpointPolicy(configuration.CheckpointsSection):
    """When checkpoints are taken, and what they may cost.

    ``snapshots`` and ``state_backend`` are older names of ``StreamSpec.state``, which wins.
    """

    snapshots: SnapshotMode = "incremental"
    state_backend: BackendName = "memory"


class SchedulePolicy(Values):
    """When the stream's housekeeping runs, in UTC; None turns one off.

    ``enabled``: they are on as soon as Dagster loads them; else they are turned on in its UI.
    """

    enabled: bool = True

    retention: Cron | None = "17 * * * *"
    drill: Cron | None = "43 4 * * *"
    audit: Cron | None = "11 5 * * *"
    orphans: Cron | None = "29 5 * * 0"
    costs: Cron | None = "5 0 * * *"
    checks: Cron | None = "*/30 * * * *"


class PriceTable(Values):
    """Prices of the store's provider, in ``currency``; the defaults are only examples."""

    currency: str = "USD"
    put_per_1000: Annotated[float, Field(ge=0)] = 0.005
    get_per_1000: Annotated[float, Field(ge=0)] = 0.0004
    gb_month: Annotated[float, Field(ge=0)] = 0.023


class StreamSpec(Values, JobSections):
    """One streaming job as Dagster runs it. The store is a resource, shared by all of them.

    ``name`` is the job's name in the store and the prefix of its asset keys. ``arguments`` go to
    the pipeline function of ``program``; a value may be a ``dagster.EnvVar``, which the driver
    reads. ``laminar`` is what starts the command line, if not this very Python.
    """

    name: Annotated[str, accepted_by(check_job_name), AfterValidator(_dagster_name)]
    program: Annotated[Path, AfterValidator(_program)]
    arguments: dict[str, Late] = Field(default_factory=dict)
    launch: Literal["detached", "supervised"] = Field(
        default="detached",
        description="How recovery and the jobs start the driver: as a process of its own that "
        "survives Dagster, or inside the run.",
    )
    standby: bool = Field(
        default=False,
        description="Keep a warm driver beside the detached one, which takes over within a second "
        "when that is lost. It costs about 760 MB of memory.",
    )
    # Sound, because values are frozen.
    checkpoints: CheckpointPolicy = CheckpointPolicy()  # pyright: ignore[reportIncompatibleVariableOverride]
    alerts: AlertPolicy = AlertPolicy()
    schedules: SchedulePolicy = SchedulePolicy()
    prices: PriceTable = PriceTable()
    stop_savepoints: Place | None = Field(
        default=None,
        description="Folder or URI: a supervised run that is terminated leaves a savepoint below "
        "it; None: its last checkpoint.",
    )
    restarts_max: Annotated[int, Field(ge=0)] = 3
    owner: Annotated[str, AfterValidator(_owner)] = "team:streaming"
    tags: Annotated[dict[str, str], AfterValidator(_tags)] = Field(
        default_factory=dict, description="On every asset and job."
    )
    kinds: Annotated[frozenset[str], AfterValidator(_kinds)] = Field(
        default=frozenset({"parquet"}), description="Of the output, beside pyspark."
    )
    description: str = ""
    output_partitions: OutputPartitions | None = Field(
        default=None,
        description="Hours or days of event time as partitions of the output, which is then an "
        "external asset; None: it has none.",
    )
    laminar: tuple[str, ...] = (sys.executable, "-m", "laminar_core.cli")

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, values: Any) -> Any:  # noqa: ANN401 - before they are checked
        """Take what stood beside the sections before there were any."""
        if not isinstance(values, dict):
            return values
        found = dict(cast("dict[str, Any]", values))
        _refuse_variables({k: v for k, v in found.items() if k != "arguments"}, "")
        for old in _MOVED.keys() & found.keys():
            section, name = _MOVED[old]
            given, value = found.get(section, {}), found.pop(old)
            if isinstance(given, BaseModel):
                given = given.model_dump(exclude_unset=True)
            found[section] = given if value is None else {**given, name: value}
        return found

    @model_validator(mode="after")
    def _a_pause_between_checkpoints_is_no_standstill(self) -> Self:
        interval = self.checkpoints.interval
        if interval and duration_ms(interval) >= duration_ms(self.alerts.checkpoint_age_max):
            raise ValueError(
                f"alerts.checkpoint_age_max ({self.alerts.checkpoint_age_max}) must be longer than "
                f"checkpoints.interval ({self.checkpoints.interval}), or the job counts as stuck"
            )
        return self

    @model_validator(mode="after")
    def _a_standby_is_a_process_of_its_own(self) -> Self:
        if self.standby and self.launch != "detached":
            raise ValueError(
                "standby needs launch: detached: a run that supervises its driver starts it again "
                "itself"
            )
        return self

    def command(self, store_uri: str, words: Sequence[str] = ()) -> list[str]:
        """Return the words that start the driver, which prints one JSON object per event.

        ``words`` are further options of ``laminar run``, such as ``--restore 42``.
        """
        # Sensors compare with the interval, and the stream's own policy decides what is kept.
        given = self.checkpoints
        keep = given.keep_last if "keep_last" in given.model_fields_set else "all"
        policy = given.model_copy(update={"interval": given.interval, "keep_last": keep})
        sections = (policy, self.state, self.recovery, self.network, self.spark, self.metrics)
        more = [*(word for section in sections for word in words_of(section)), *words]
        return [*self.laminar, "run", *self._job_words(store_uri, words), *more, "--json"]

    def dry_run_command(self, store_uri: str, words: Sequence[str] = ()) -> list[str]:
        """Return the words that report, as JSON, what such a ``command`` would continue from."""
        job_words = self._job_words(store_uri, words)
        return [*self.laminar, "recover", *job_words, *words, "--dry-run", "--json"]

    def target_words(self) -> list[str]:
        """The pipeline and its arguments, as every command takes them that builds it."""
        settings = [f"{name}={_word(value)}" for name, value in self.arguments.items()]
        return [str(self.program), *(word for each in settings for word in ("--set", each))]

    def _job_words(self, store_uri: str, words: Sequence[str]) -> list[str]:
        workers = () if "--workers" in words else ("--workers", str(self.workers))
        return [*self.target_words(), "--store", store_uri, "--job", self.name, *workers]

    @property
    def start_timeout_ms(self) -> int:
        """How long Dagster waits for the workers; 10 minutes, if the stream does not set it."""
        is_set = "start_timeout" in self.recovery.model_fields_set
        return duration_ms(self.recovery.start_timeout) if is_set else _START_TIMEOUT_MS

    @property
    def code_version(self) -> str:
        """Return a version that changes with the program or its arguments.

        A missing program counts as an empty one.
        """
        program = self.program.read_bytes() if self.program.exists() else b""
        arguments = repr(sorted(self.arguments.items())).encode()
        return hashlib.sha256(program + arguments).hexdigest()[:12]
