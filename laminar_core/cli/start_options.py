"""What ``laminar run`` asks for beside checkpoints: the program, Spark, and how the job starts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from pyspark.sql import SparkSession

from laminar_core.cli.options import DURATION, INSTANT, KEY_VALUE, GlobalSettings
from laminar_core.driver.liveness import Deadlines
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.objectstore.opening import absolute_uri
from laminar_core.pipeline import RunConfig
from laminar_core.spark.conditions import SparkFacts, master_of, refuse_unsuitable
from laminar_core.spark.session import open_session
from laminar_core.store.attribution import actor_of_environment
from laminar_core.units import duration_ms

FAST_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
}
"""A driver of its own only schedules: a JVM that starts fast is better than one that peaks high."""

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

_PROGRAM = (
    click.argument("target"),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Argument of the pipeline function; repeatable.",
    ),
)
_SPARK = (
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=2,
        show_default=True,
        help="Spark tasks that run side by side, of any number that the job had before.",
    ),
    click.option("--master", help="Spark master  [default: local[WORKERS]]."),
    click.option(
        "--conf",
        multiple=True,
        type=KEY_VALUE,
        metavar="KEY=VALUE",
        help="Spark setting; repeatable.",
    ),
)
_START = (
    click.option("--job", help="Name of the job in the store  [default: the pipeline's]."),
    click.option(
        "--restarts",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        help="Restarts after failures in a row.",
    ),
    click.option(
        "--restore",
        "restore_id",
        type=click.IntRange(min=1),
        metavar="ID",
        help="Go back to this checkpoint; what came after it is withdrawn.",
    ),
    click.option(
        "--restore-before",
        "--before",
        type=INSTANT,
        metavar="TIME",
        help="Go back to the newest checkpoint completed before this time (ISO 8601 with a zone).",
    ),
    click.option(
        "--from-savepoint",
        metavar="URI",
        help="Start from this savepoint: of this job a step back, of another one under a new "
        "--job.",
    ),
    click.option(
        "--claim/--no-claim",
        default=False,
        help="Delete the savepoint once a checkpoint builds on it  [default: never touch it].",
    ),
    click.option(
        "--savepoints-under",
        multiple=True,
        envvar="LAMINAR_SAVEPOINTS_UNDER",
        metavar="PLACE",
        help="Commands may have savepoints written below this directory or bucket; repeatable  "
        "[default: where the store is, and the current directory].",
    ),
    click.option("--take-over", is_flag=True, help="Run although the job's driver may be alive."),
    click.option(
        "--expect-generation",
        "expected_generation",
        type=click.IntRange(min=0),
        metavar="N",
        help="Only if N is the newest generation that ran the job, 0: it never ran. Of several "
        "that expect the same one starts.",
    ),
    click.option(
        "--allow-fresh", is_flag=True, help="Start empty if checkpoints exist and none is usable."
    ),
    click.option(
        "--reset-state",
        multiple=True,
        metavar="OPERATOR",
        help="Drop all state and read all sources anew, because OPERATOR changed; repeatable.",
    ),
    click.option(
        "--transport",
        type=click.Choice(["auto", "ipc", "curve", "tcp"]),
        default="auto",
        show_default=True,
        help="Between workers; tcp is neither encrypted nor authenticated.",
    ),
    click.option(
        "--require-encryption",
        is_flag=True,
        help="Refuse a cluster whose network could read the rows, or the key of the workers.",
    ),
    click.option(
        "--start-timeout",
        type=DURATION,
        default="2 minutes",
        show_default=True,
        help="Workers that have not restored their state by then are started again.",
    ),
    click.option(
        "--silence-timeout",
        type=DURATION,
        default="30 seconds",
        show_default=True,
        help="A worker whose process sends no sign of life for so long is dead.",
    ),
    click.option(
        "--progress-timeout",
        type=DURATION,
        default="30 minutes",
        show_default=True,
        help="A worker that needs longer than this for one batch hangs; the job is started again.",
    ),
    click.option(
        "--reason", default="started", show_default=True, help="Kept in the job's record."
    ),
)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where the workers run.

    Raises:
        ConfigurationError: ``master`` and a setting say different things, or Spark would be one
            that cannot run them.
    """

    workers: int
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the options alone show; what Spark adds to them is seen when it runs."""
        facts = SparkFacts(self.effective_master, dict(self.conf))
        refuse_unsuitable(facts, self.workers)

    @property
    def effective_master(self) -> str:
        """As asked for, by option or by setting, or this host."""
        return master_of(self.master, dict(self.conf)) or f"local[{self.workers}]"

    def open(self, name: str, settings: GlobalSettings) -> SparkSession:
        """Start Spark, or connect to it.

        Raises:
            ConfigurationError: there is no Java, or Spark refuses a setting.
        """
        return open_session(
            self.effective_master,
            name,
            conf={**FAST_START, **dict(self.conf)},
            show_logs=settings.debug,
        )


def program_options(command: Command) -> Command:
    """Add TARGET and its settings: ``target`` and ``settings``, as ``load_pipeline`` takes them."""
    return _with_options(command, _PROGRAM)


def spark_options(command: Command) -> Command:
    """Add the options; what they say becomes the argument ``spark``."""

    @wraps(command)
    def with_settings(*args: Any, **values: Any) -> None:  # noqa: ANN401 - as click calls it
        take = values.pop
        spark = SparkSettings(take("workers"), take("master"), take("conf"))
        command(*args, spark=spark, **values)

    return _with_options(with_settings, _SPARK)


def start_options(command: Command) -> Command:
    """Add the options; what they say becomes the argument ``config``."""

    @wraps(command)
    def with_config(*args: Any, **values: Any) -> None:  # noqa: ANN401 - as click calls it
        command(*args, config=start_config(values), **values)

    return _with_options(with_config, _START)


def start_config(values: dict[str, Any]) -> RunConfig:
    """Take the options that ``start_options`` adds out of ``values``; the environment says who.

    Raises:
        ConfigurationError: wishes that do not go together.
    """
    take = values.pop
    savepoint = take("from_savepoint")
    return RunConfig(
        job=take("job"),
        workers=values["workers"],
        restart=ExponentialDelay(attempts=take("restarts")),
        transport=take("transport"),
        require_encryption=take("require_encryption"),
        take_over=take("take_over"),
        expected_generation=take("expected_generation"),
        allow_fresh=take("allow_fresh"),
        reset_state=take("reset_state"),
        restore_id=take("restore_id"),
        restore_before=take("restore_before"),
        from_savepoint=savepoint and absolute_uri(savepoint),
        claim=take("claim"),
        savepoints_under=tuple(map(absolute_uri, take("savepoints_under"))),
        actor=actor_of_environment(take("reason")),
        deadlines=Deadlines(
            register_ms=duration_ms(take("start_timeout")),
            silence_ms=duration_ms(take("silence_timeout")),
            progress_ms=duration_ms(take("progress_timeout")),
        ),
    )


def _with_options(command: Command, options: tuple[Decorator, ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
