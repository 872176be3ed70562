"""``laminar drills run``.

Restore a checkpoint in a scratch Spark job to prove that it can be restored.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.groups import examples
from laminar_core.cli.options import INSTANT, GroupedCommand, json_option
from laminar_core.cli.start_options import (
    checkpoint_config,
    configuration_of,
    open_spark,
    program_options,
    section_options,
)
from laminar_core.cli.target import load_pipeline
from laminar_core.cli.views import print_table, size_text
from laminar_core.driver.drill.drill import BATCHES_MAX, Drill, DrillOptions, require_drillable
from laminar_core.host.clock import SystemClock
from laminar_core.host.private_folders import PrivateFolder, temporary_root
from laminar_core.host.terminal import say
from laminar_core.pipeline import Pipeline, RunConfig
from laminar_core.pipeline.config import job_options
from laminar_core.records.drill import DrillRecord
from laminar_core.records.paths import check_job_name
from laminar_core.spark.sessions import OwnSession
from laminar_core.spark.stage import SparkCluster
from laminar_core.store.attribution import actor_of_environment
from laminar_core.store.checkpoint_store import CheckpointStore


@click.command(
    cls=GroupedCommand,
    epilog=examples(
        "laminar drills run job.py --store build/store",
        "laminar drills run job.py --store build/store --before 2026-01-31T12:00:00Z --workers 4",
    ),
)
@program_options
@section_options("spark")
@click.option(
    "--checkpoint",
    "checkpoint_id",
    type=click.IntRange(min=1),
    metavar="ID",
    help="Restore this checkpoint  [default: the newest that passes verification].",
)
@click.option(
    "--before",
    type=INSTANT,
    metavar="TIME",
    help="Restore the newest checkpoint completed before this time.",
)
@click.option(
    "--random",
    "random_seed",
    type=int,
    metavar="SEED",
    help="Restore a random checkpoint before the newest; equal seeds choose the same one.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=0),
    default=BATCHES_MAX,
    show_default=True,
    help="Number of new batches to read from each source, per worker.",
)
@click.option(
    "--scratch",
    metavar="URI",
    help="An empty directory or URI for the copy, which the workers can access too  "
    "[default: a temporary directory].",
)
@click.option(
    "--reason", default="a restore drill", show_default=True, help="Kept in the job's record."
)
@json_option
@click.pass_obj
def drill(  # noqa: PLR0913 - one parameter per option
    settings_of_all: GlobalSettings,
    *,
    target: str,
    settings: tuple[str, ...],
    checkpoint_id: int | None,
    before: str | None,
    random_seed: int | None,
    batches: int,
    scratch: str | None,
    reason: str,
    as_json: bool,
    **values: Any,  # noqa: ANN401 - one for each option
) -> None:
    """Prove in a scratch Spark job that a checkpoint restores.

    TARGET builds the pipeline, as for `laminar run`. The job may run meanwhile: its output is not
    touched. The store gets a record of the drill, and retention keeps the checkpoint until the
    drill ends. What each operator restored is compared with the checkpoint's files, a few batches
    are processed, and one further checkpoint completes.

    The exit code is 0 if all of this succeeded.
    """
    if sum(choice is not None for choice in (checkpoint_id, before, random_seed)) > 1:
        raise click.UsageError("--checkpoint, --before and --random exclude each other: give one")
    configuration = configuration_of(values, "spark")
    configuration.spark.master_for(configuration.workers)  # Refuses what cannot run.
    config = RunConfig(
        job=configuration.job,
        restore_id=checkpoint_id,
        restore_before=before,
        actor=actor_of_environment(reason),
    )
    pipeline = load_pipeline(target, settings)
    checkpoint = checkpoint_config(configuration)
    wanted = job_options(pipeline.name, configuration.workers, checkpoint, config)
    options = DrillOptions(wanted, random_seed, batches)
    name = check_job_name(wanted.job)
    # Whatever can be refused without Spark is refused before it is started.
    pipeline.plan().check()
    require_drillable(CheckpointStore.open(checkpoint.store, name), options)
    with _place(scratch) as place:  # It goes last: workers write there as long as they live.
        title = f"laminar drill of {name}"
        with OwnSession(lambda: open_spark(configuration, title, settings_of_all)) as session:
            record = _run(session, pipeline, options, place)
    if as_json:
        click.echo(record.model_dump_json(indent=1))
    else:
        print_drill(record)
    if record.exit_code:
        sys.exit(record.exit_code)


@contextmanager
def _place(scratch: str | None) -> Iterator[str]:
    """Yield the place of the copy; a temporary one is removed afterwards."""
    if scratch is not None:
        yield scratch
        return
    with PrivateFolder.open(temporary_root(), "drill-") as folder:
        yield str(folder / "store")


def _run(
    session: OwnSession, pipeline: Pipeline, options: DrillOptions, scratch: str
) -> DrillRecord:
    job, clock = options.job, SystemClock()
    return Drill(
        SparkCluster(session, "auto", clock),
        pipeline.plan(),
        options,
        CheckpointStore.open(job.store_uri, job.job),
        CheckpointStore.open(scratch, job.job),
        clock,
    ).run()


def print_drill(record: DrillRecord) -> None:
    """Print what was restored, and the problems."""
    number = record.checkpoint_id
    which = "no checkpoint" if number is None else f"checkpoint {number}"
    say(
        f"drill {record.number} of {record.job}, {which}: {record.outcome} after "
        f"{record.duration_ms / 1000:.1f} s"
    )
    for problem in record.problems:
        say(f"  {problem}")
    if record.completed_checkpoint_id is None:
        return
    say(
        f"{size_text(record.size_bytes)} and {record.inflight_rows:,} rows in flight restored with "
        f"{record.workers} workers ({record.workers_before} before), {record.rows_read:,} new rows "
        "read, a further checkpoint completed"
    )
    if record.operators:
        say()
        print_table(
            ("operator", "rows", "digest", "in the checkpoint"),
            (
                (
                    one.operator_id,
                    f"{one.rows_restored:,}",
                    one.digest_restored,
                    "the same" if one.is_equal else f"{one.rows_expected:,} {one.digest_expected}",
                )
                for one in record.operators
            ),
        )
