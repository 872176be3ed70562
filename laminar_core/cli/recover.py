"""``laminar recover``: show what a start would continue from, and start the job on request."""

import json
import sys
from typing import Any

import click

from laminar_core.cli.groups import examples
from laminar_core.cli.options import GroupedCommand
from laminar_core.cli.recovery_view import print_recovery
from laminar_core.cli.run import run
from laminar_core.cli.start_options import (
    SECTIONS,
    checkpoint_config,
    configuration_of,
    run_config,
)
from laminar_core.cli.target import load_pipeline
from laminar_core.driver.listening import NOBODY
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.report import RecoveryReport, problem_as_dict
from laminar_core.driver.recovery.start import RecoveryManager
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.objectstore.opening import open_object_store
from laminar_core.pipeline.config import job_options
from laminar_core.plan.plan import Plan
from laminar_core.records.paths import check_job_name
from laminar_core.records.savepoint import SavepointOrigin
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import is_running, is_visible
from laminar_core.store.savepoints import read_savepoint

_HELP = """Report what TARGET would continue from, then run it.

It runs as with `laminar run`. The report names the checkpoint, its age and size, state that does
not fit the pipeline, sources that no longer have the rows after their position, output that would
be committed or withdrawn, and every rejected checkpoint with the reason. With --dry-run the command
only prints the report: it claims, writes and starts nothing, so the job may be running.

With --dry-run the exit code is 0 if the job would start, otherwise that of the refused start.
"""


def _recover(*, dry_run: bool, **values: Any) -> None:  # noqa: ANN401 - the options of `run`
    context = click.get_current_context()
    store = values["store"]
    built = load_pipeline(values["target"], values["settings"])
    plan = built.plan()
    plan.check()
    rest = dict(values)
    configuration = configuration_of(rest, *SECTIONS)
    config = run_config(configuration, rest)  # Refuses what contradicts itself, as a run would.
    checkpoint = checkpoint_config(configuration)
    options = job_options(built.name, configuration.workers, checkpoint, config)
    opened = CheckpointStore.open(store, check_job_name(options.job))
    opened.claims.check_expected(options.expected_generation)
    if options.from_savepoint is not None:
        if not values["as_json"]:
            say(_sentence(options, _look_at_savepoint(plan, options, opened)))
        elif dry_run:
            _print_as_json(plan, options, opened)
        if not dry_run:
            context.invoke(run, **values)
        return
    report, owner = examine(plan, options, opened), owner_of(opened)
    if not values["as_json"]:
        print_recovery(report, owner)
    elif dry_run:
        click.echo(json.dumps({**report.as_dict(), "owner": owner}, indent=1))
    if not dry_run:
        context.invoke(run, **values)
    elif report.exit_code:
        sys.exit(report.exit_code)


def _look_at_savepoint(
    plan: Plan, options: JobOptions, store: CheckpointStore
) -> SavepointOrigin | None:
    """Read the whole savepoint; return None if the job has imported it before and continues.

    Raises:
        ConfigurationError: there is none, or a sink has other output.
        IncompatibleStateError: it does not fit the pipeline or the job.
        CorruptCheckpointError: it is damaged.
    """
    assert options.from_savepoint is not None, "only asked for one"
    if _manager(plan, options, store).look() is None:
        return None
    found = read_savepoint(open_object_store(options.from_savepoint))
    if problem := found.verify().problem:
        raise CorruptCheckpointError(ErrorCode.DIGEST_DIFFERS, problem)
    return found.record.origin


def _sentence(options: JobOptions, origin: SavepointOrigin | None) -> str:
    place = options.from_savepoint
    if origin is None:
        return f"job {options.job} has already started from {place}: it continues"
    return (
        f"job {options.job} would start from {place}, which is checkpoint "
        f"{origin.checkpoint_id} of job {origin.job}. The savepoint is intact"
    )


def _print_as_json(plan: Plan, options: JobOptions, store: CheckpointStore) -> None:
    """Print what a start from a savepoint would do; exit with its code if it would be refused."""
    origin, problem = None, None
    try:
        origin = _look_at_savepoint(plan, options, store)
    except (ConfigurationError, IncompatibleStateError, CorruptCheckpointError) as error:
        problem = error
    exit_code = 0 if problem is None else problem.exit_code
    said = {
        "verdict": "restore" if problem is None else "refuse",
        "exit_code": exit_code,
        "job": options.job,
        "workers": options.parallelism,
        "savepoint": options.from_savepoint,
        "origin": None if origin is None else origin.model_dump(mode="json"),
        "problems": [] if problem is None else [problem_as_dict(problem)],
        "owner": owner_of(store),
    }
    click.echo(json.dumps(said, indent=1))
    if exit_code:
        sys.exit(exit_code)


def examine(plan: Plan, options: JobOptions, store: CheckpointStore) -> RecoveryReport:
    """Return what a start with these options would do now; changes nothing.

    Raises:
        CorruptCheckpointError: the base of an earlier run cannot be read.
        StorageUnavailable: the store, or a sink, did not answer.
    """
    return _manager(plan, options, store).examine().report


def _manager(plan: Plan, options: JobOptions, store: CheckpointStore) -> RecoveryManager:
    clock = SystemClock()
    audit = AuditLog(store.objects, store.paths, clock.now_ms)
    return RecoveryManager(plan, options, store, clock, NOBODY, audit)


def owner_of(store: CheckpointStore) -> str | None:
    """Describe the owner of the job, unless it has ended or is known to be dead."""
    newest = max(store.generations.summaries(), key=lambda g: g.generation, default=None)
    if newest is None or newest.end is not None:
        return None
    if newest.claim is None:
        return f"generation {newest.generation} has not ended, and its claim cannot be read"
    owner = newest.claim.owner
    if not is_visible(owner):
        return (
            f"generation {newest.generation} has not ended: it may be alive on "
            f"{owner.host_id.partition('/')[0]}"
        )
    if not is_running(owner):
        return None
    return (
        f"generation {newest.generation} is alive (process {owner.pid}): a start is refused until "
        "it ends, or takes the job over with --take-over"
    )


recover = GroupedCommand(
    "recover",
    callback=_recover,
    params=[
        *run.params,
        click.Option(["--dry-run"], is_flag=True, help="Only report; change nothing."),
    ],
    help=_HELP,
    epilog=examples("laminar recover job.py --store build/store --dry-run"),
)
"""The command, with every option of ``laminar run``."""
