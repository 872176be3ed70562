"""``laminar run``: one pipeline, one driver, until its input ends or somebody stops it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Literal

import click
from pyspark.sql import SparkSession

from laminar_core.cli.checkpoint_options import checkpoint_options
from laminar_core.cli.options import INSTANT, KEY_VALUE, GlobalSettings
from laminar_core.cli.reporting import JsonReporter, Reporter, TextReporter
from laminar_core.cli.target import load_pipeline
from laminar_core.errors import LaminarError
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig, StreamingJob
from laminar_core.runtime.restart import ExponentialDelay
from laminar_core.runtime.session import open_session
from laminar_core.state.paths import check_job_name
from laminar_core.storage.object_store import absolute_uri
from laminar_core.storage.owner import this_process

FAST_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
}
"""A driver of its own only schedules: a JVM that starts fast is better than one that peaks high."""


@click.command()
@click.argument("target")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the pipeline function; repeatable.",
)
@checkpoint_options
@click.option("--job", help="Name of the job in the store  [default: the pipeline's].")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Spark tasks that run side by side.",
)
@click.option("--master", help="Spark master  [default: local[WORKERS]].")
@click.option(
    "--conf",
    "conf",
    multiple=True,
    type=KEY_VALUE,
    metavar="KEY=VALUE",
    help="Spark setting; repeatable.",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Restarts after failures in a row.",
)
@click.option(
    "--restore",
    "restore_id",
    type=click.IntRange(min=1),
    metavar="ID",
    help="Go back to this checkpoint; what came after it is withdrawn.",
)
@click.option(
    "--restore-before",
    "--before",
    type=INSTANT,
    metavar="TIME",
    help="Go back to the newest checkpoint completed before this time (ISO 8601 with a zone).",
)
@click.option(
    "--from-savepoint",
    metavar="URI",
    help="Start from this savepoint: of this job a step back, of another one under a new --job.",
)
@click.option(
    "--claim/--no-claim",
    default=False,
    help="Delete the savepoint once a checkpoint builds on it  [default: never touch it].",
)
@click.option("--take-over", is_flag=True, help="Run although the job's driver may be alive.")
@click.option(
    "--allow-fresh", is_flag=True, help="Start empty if checkpoints exist and none is usable."
)
@click.option(
    "--reset-state",
    multiple=True,
    metavar="OPERATOR",
    help="Drop all state and read all sources anew, because OPERATOR changed; repeatable.",
)
@click.option(
    "--transport",
    type=click.Choice(["auto", "ipc", "curve", "tcp"]),
    default="auto",
    show_default=True,
    help="Between workers; tcp is neither encrypted nor authenticated.",
)
@click.option("--reason", default="started", show_default=True, help="Kept in the job's record.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option(
    "--progress/--no-progress", default=None, help="Progress bar  [default: on a terminal]."
)
@click.pass_obj
def run(  # noqa: PLR0913 - one parameter per option
    settings_of_all: GlobalSettings,
    *,
    target: str,
    settings: tuple[str, ...],
    checkpoint: CheckpointConfig,
    job: str | None,
    workers: int,
    master: str | None,
    conf: tuple[tuple[str, str], ...],
    restarts: int,
    restore_id: int | None,
    restore_before: str | None,
    from_savepoint: str | None,
    claim: bool,
    take_over: bool,
    allow_fresh: bool,
    reset_state: tuple[str, ...],
    transport: Literal["auto", "ipc", "curve", "tcp"],
    reason: str,
    as_json: bool,
    progress: bool | None,
) -> None:
    """Run the pipeline that TARGET builds.

    TARGET is a file or a module, with :function behind it if the function is not called
    "pipeline". Ctrl-C or SIGTERM takes a last checkpoint, commits and ends; a second one ends at
    once.
    """
    config = RunConfig(
        workers=workers,
        job=job,
        restart=ExponentialDelay(attempts=restarts),
        transport=transport,
        take_over=take_over,
        allow_fresh=allow_fresh,
        reset_state=reset_state,
        restore_id=restore_id,
        restore_before=restore_before,
        from_savepoint=from_savepoint and absolute_uri(from_savepoint),
        claim=claim,
        actor=this_process().user,
        reason=reason,
    )
    start_spark = partial(
        open_session,
        master or f"local[{workers}]",
        conf={**FAST_START, **dict(conf)},
        show_logs=settings_of_all.debug,
    )
    with _reporting(as_json=as_json, show_bar=progress) as reporter:
        _run(load_pipeline(target, settings), start_spark, checkpoint, config, reporter)


@contextmanager
def _reporting(*, as_json: bool, show_bar: bool | None) -> Iterator[Reporter]:
    reporter: Reporter = JsonReporter() if as_json else TextReporter(show_bar=show_bar)
    with reporter:
        try:
            yield reporter
        except LaminarError as error:
            reporter.failed(error)
            raise


def _run(
    pipeline: Pipeline,
    start_spark: Callable[[str], SparkSession],
    checkpoint: CheckpointConfig,
    config: RunConfig,
    reporter: Reporter,
) -> None:
    # Whatever can be refused without Spark is refused before it is started.
    pipeline.plan()
    job_name = check_job_name(config.job or pipeline.name)
    spark = start_spark(f"laminar {job_name}")
    try:
        job = pipeline.start(spark, checkpoint=checkpoint, run=config, listener=reporter.on_event)
        _stop_on_signals(job)  # After the session: Spark installs a handler of its own.
        result = job.result()
    finally:
        spark.stop()
    for sink, table in result.collected.items():
        reporter.rows(sink, table)


def _stop_on_signals(job: StreamingJob) -> None:
    """First signal: end with a checkpoint. Second: end now."""
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        if len(received) == 1:
            job.stop()
        else:
            job.cancel()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
