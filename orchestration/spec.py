"""What a team writes to have a streaming job in Dagster. Nothing but checked values."""

import hashlib
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from laminar_core.errors import ConfigurationError
from laminar_core.operators.windows import duration_us
from laminar_core.state.paths import check_job_name

_OWNER = re.compile(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s]+")


def _duration(text: str) -> str:
    try:
        duration_us(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return text


def _job_name(name: str) -> str:
    try:
        return check_job_name(name)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _owner(owner: str) -> str:
    if not _OWNER.fullmatch(owner):
        raise ValueError("give an e-mail address, or team:NAME")
    return owner


Duration = Annotated[str, AfterValidator(_duration)]
"""As in ``"30 seconds"``."""


class _Values(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckpointPolicy(_Values):
    """When checkpoints are taken and what they write; the options of ``laminar run``."""

    interval: Duration = "10 seconds"
    timeout: Duration = "10 minutes"
    min_pause: Duration | None = None
    alignment: Literal["aligned", "unaligned"] | None = Field(
        default=None, description="Never, or from the start; None: after alignment_timeout."
    )
    alignment_timeout: Duration | None = Field(
        default=None, description="None: 30 seconds. Not together with alignment."
    )
    snapshots: Literal["full", "incremental", "changelog"] = "incremental"
    state_backend: Literal["memory", "rocksdb"] = "memory"

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
        return words if self.alignment is None else [*words, f"--{self.alignment}"]

    def _is_set(self, name: str) -> bool:
        return getattr(self, name) != type(self).model_fields[name].default


class StreamSpec(_Values):
    """One streaming job as Dagster runs it. The store is a resource, shared by all of them.

    ``name`` is the job's name in the store and the prefix of its asset keys. ``arguments`` go to
    the pipeline function of ``program``. ``laminar`` is what starts the command line, if not this
    very Python.
    """

    name: Annotated[str, AfterValidator(_job_name)]
    program: Path
    arguments: dict[str, str] = Field(default_factory=dict)
    workers: Annotated[int, Field(ge=1)] = 2
    checkpoints: CheckpointPolicy = CheckpointPolicy()
    spark_conf: dict[str, str] = Field(default_factory=dict)
    restarts_max: Annotated[int, Field(ge=0)] = 3
    owner: Annotated[str, AfterValidator(_owner)] = "team:streaming"
    description: str = ""
    laminar: tuple[str, ...] = (sys.executable, "-m", "laminar_core.cli")

    def command(self, store_uri: str) -> list[str]:
        """What starts the driver; it writes one JSON object per event to standard output."""
        settings = [f"{name}={value}" for name, value in self.arguments.items()]
        conf = [f"{name}={value}" for name, value in self.spark_conf.items()]
        return [
            *(*self.laminar, "run", str(self.program)),
            *(word for setting in settings for word in ("--set", setting)),
            *("--store", store_uri, "--job", self.name, "--workers", str(self.workers)),
            *self.checkpoints.words(),
            *(word for setting in conf for word in ("--conf", setting)),
            "--json",
        ]

    @property
    def code_version(self) -> str:
        """Changes when the program or its arguments do; the empty program is one that is gone."""
        program = self.program.read_bytes() if self.program.exists() else b""
        arguments = repr(sorted(self.arguments.items())).encode()
        return hashlib.sha256(program + arguments).hexdigest()[:12]
