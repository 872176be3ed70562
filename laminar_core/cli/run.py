"""``laminar run``: one pipeline, one driver, until its input ends or it is stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import click
from pyspark.sql import SparkSession

from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.groups import examples
from laminar_core.cli.options import GroupedCommand
from laminar_core.cli.reporting import JsonReporter, Reporter, TextReporter
from laminar_core.cli.signals import stop_on_signals
from laminar_core.cli.standby import Standby, refuse_other_starts
from laminar_core.cli.start_options import (
    SECTIONS,
    checkpoint_config,
    configuration_of,
    open_spark,
    program_options,
    run_config,
    start_options,
)
from laminar_core.cli.target import load_pipeline
from laminar_core.driver.options import JobResult
from laminar_core.driver.preflight import check_start
from laminar_core.errors import LaminarError
from laminar_core.host.clock import SystemClock
from laminar_core.metrics.exporter import require_metrics
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.pipeline.config import job_options
from laminar_core.records.paths import check_job_name
from laminar_core.spark.facts import SparkFacts
from laminar_core.spark.sessions import OwnSession
from laminar_core.store.checkpoint_store import CheckpointStore


@click.command(
    cls=GroupedCommand,
    epilog=examples(
        "laminar run jobs/payments.py --store build/store --set input=in --set output=out",
        "laminar run job.py --store build/store --restore 12 --reason 'a wrong deploy'",
    ),
)
@program_options
@start_options
@click.option(
    "--standby",
    is_flag=True,
    help="Wait until the job's driver is lost, then take the job over. With a local master, "
    "Spark is started before.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option(
    "--progress/--no-progress", default=None, help="Progress bar  [default: on a terminal]."
)
@click.pass_obj
def run(
    settings_of_all: GlobalSettings,
    *,
    target: str,
    settings: tuple[str, ...],
    standby: bool,
    as_json: bool,
    progress: bool | None,
    **values: Any,  # noqa: ANN401 - one for each option
) -> None:
    """Run the pipeline that TARGET builds.

    TARGET is a file or a module; add :function if the function is not called "pipeline". Ctrl-C or
    SIGTERM takes a last checkpoint, commits its output and ends the job; a second one ends it at
    once.

    Variables LAMINAR_… and the file laminar.toml set options, too: see `laminar config`.
    """
    if standby:
        refuse_other_starts(values)
    configuration = configuration_of(values, *SECTIONS)
    master = configuration.spark.master_for(configuration.workers)  # Refuses what cannot run.
    require_metrics(configuration.metrics)
    checkpoint, config = checkpoint_config(configuration), run_config(configuration, values)
    start_spark = partial(open_spark, configuration, settings=settings_of_all)
    with _reporting(as_json=as_json, show_bar=progress) as reporter:
        pipeline = load_pipeline(target, settings)
        if not standby:
            _run(pipeline, start_spark, checkpoint, config, reporter)
            return
        is_warm = SparkFacts(master).on_one_host  # On a cluster it would hold cores meanwhile.
        result = Standby(pipeline, start_spark, checkpoint, config, reporter, is_warm).run()
        if result is not None:
            _report_rows(result, reporter)


@contextmanager
def _reporting(*, as_json: bool, show_bar: bool | None) -> Iterator[Reporter]:
    reporter: Reporter = JsonReporter() if as_json else TextReporter(show_bar=show_bar)
    with reporter:
        try:
            yield reporter
        except LaminarError as error:
            with suppress(OSError):  # The exit code and the last line say so, too.
                reporter.failed(error)
            raise


def _run(
    pipeline: Pipeline,
    start_spark: Callable[[str], SparkSession],
    checkpoint: CheckpointConfig,
    config: RunConfig,
    reporter: Reporter,
) -> None:
    job_name = check_job_name(config.job or pipeline.name)
    options = job_options(pipeline.name, config.workers or 1, checkpoint, config)
    store = CheckpointStore.open(checkpoint.store, job_name)
    check_start(pipeline.plan(), options, store, SystemClock())
    with OwnSession(lambda: start_spark(f"laminar {job_name}")) as spark:
        job = pipeline.start(spark, checkpoint=checkpoint, run=config, listener=reporter.on_event)
        # After the session: Spark installs a handler of its own.
        stop_on_signals(job, SystemClock())
        result = job.result()
    _report_rows(result, reporter)


def _report_rows(result: JobResult, reporter: Reporter) -> None:
    for sink, table in result.collected.items():
        reporter.rows(sink, table)
