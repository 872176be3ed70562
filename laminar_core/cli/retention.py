"""``laminar retention``: show what would be deleted and why, delete it, and show earlier plans."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import (
    SETTINGS,
    STRONGER_THAN_FILES,
    GroupedCommand,
    json_option,
    options_of,
    store_option,
    taken,
    together,
)
from laminar_core.cli.retention_view import (
    plan_as_json,
    print_plan,
    print_result,
    print_status,
    status_as_json,
)
from laminar_core.cli.views import print_json
from laminar_core.host.clock import SystemClock
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.run import Retention
from laminar_core.retention.status import read_status
from laminar_core.store.attribution import actor_of_environment
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore

_POLICY = [setting for setting in SETTINGS.values() if setting.section == "retention"]

policy_options = together(
    click.option(
        "--policy",
        "policy_file",
        type=click.Path(path_type=Path),
        help="A TOML or JSON file with a policy; options override its values.",
    ),
    options_of(_POLICY, "Policy"),
    click.option(
        "--verify",
        "whole",
        is_flag=True,
        help="Read every byte to find out what can be restored; otherwise only compare lengths.",
    ),
)


def _config(context: click.Context, values: dict[str, Any]) -> RetentionConfig:
    """Take the policy out of ``values``; a file of its own takes the place of ``laminar.toml``."""
    path = values.pop("policy_file")
    named = taken(values, _POLICY)
    if path is None:
        return RetentionConfig(**named)
    stronger = {
        setting.name: named[setting.name]
        for setting in _POLICY
        if context.get_parameter_source(setting.parameter) in STRONGER_THAN_FILES
    }
    return RetentionConfig(**(RetentionConfig.read(path).model_dump() | stronger))


@click.group()
def retention() -> None:
    """Delete old checkpoints of a job, and left-over files."""


@retention.command(
    cls=GroupedCommand,
    epilog=examples("laminar retention plan --store build/store --keep-last 5"),
)
@store_option
@job_option
@policy_options
@click.option("--files", is_flag=True, help="Also name every file that would be deleted.")
@json_option
def plan(
    *,
    store: str,
    job: str | None,
    whole: bool,
    files: bool,
    as_json: bool,
    **values: Any,  # noqa: ANN401 - one for each option
) -> None:
    """Show what would be deleted, what would stay, and why.

    Nothing is changed.
    """
    config = _config(click.get_current_context(), values)
    runner = _runner(open_job(store, job), config, whole=whole)
    _show(runner, config, with_files=files, as_json=as_json)


@retention.command(
    cls=GroupedCommand,
    epilog=examples(
        "laminar retention apply --store build/store --keep-last 5 --reason 'make room'",
    ),
)
@store_option
@job_option
@policy_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="The same as `laminar retention plan`.")
@click.option("--reason", default="asked for", show_default=True, help="Kept in the audit log.")
@json_option
def apply(  # noqa: PLR0913 - one parameter per option
    *,
    store: str,
    job: str | None,
    whole: bool,
    yes: bool,
    dry_run: bool,
    reason: str,
    as_json: bool,
    **values: Any,  # noqa: ANN401 - one for each option
) -> None:
    """Delete what the policy does not keep, after confirmation.

    An unfinished earlier run is finished first. If this run is killed at any point, the next run
    continues it.
    """
    config = _config(click.get_current_context(), values)
    runner = _runner(open_job(store, job), config, whole=whole)
    if dry_run:
        _show(runner, config, with_files=False, as_json=as_json)
        return
    if not yes and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("the deletion cannot be confirmed here: give --yes, or --dry-run")
    from laminar_core.cli.deletion_bar import deletion_bar  # noqa: PLC0415 - plans need no bar

    actor = actor_of_environment(reason)
    with deletion_bar() as progress:
        finished = runner.finish_earlier(progress, run_id=actor.run_id)
    for result in finished:
        if not as_json:
            print_result(result, "an earlier plan was finished")
    planned = runner.plan()
    if not as_json:
        print_plan(planned.plan, config, [], with_files=False)
    if not planned.plan.is_empty and not yes:
        click.confirm("delete this?", abort=True)
    with deletion_bar() as progress:
        result = runner.apply(planned, actor, config.model_dump(), progress)
    if as_json:
        done = None if result is None else result.model_dump(mode="json")
        click.echo(json.dumps({"result": done}, indent=1))
    elif result is not None:
        print_result(result, "done")


@retention.command(
    epilog=examples("laminar retention status --store build/store"),
)
@store_option
@job_option
@json_option
def status(*, store: str, job: str | None, as_json: bool) -> None:
    """Show plans, quarantine and pins of a job.

    Files wait in quarantine before they are deleted.
    """
    found = read_status(open_job(store, job))
    if as_json:
        click.echo(json.dumps(status_as_json(found), indent=1))
    else:
        print_status(found, SystemClock().now_ms())


def _show(runner: Retention, config: RetentionConfig, *, with_files: bool, as_json: bool) -> None:
    planned = runner.plan(indexed=True)
    unfinished = list(runner.log.unfinished())
    if as_json:
        print_json(plan_as_json(planned.plan, config, unfinished))
    else:
        print_plan(planned.plan, config, unfinished, with_files=with_files)


def _runner(store: CheckpointStore, config: RetentionConfig, *, whole: bool) -> Retention:
    now_ms = SystemClock().now_ms
    return Retention(
        store,
        config.policy(),
        now_ms,
        verify="bytes" if whole else "sizes",
        audit=AuditLog(store.objects, store.paths, now_ms),
    )
