"""``laminar checkpoints take``, ``stop``, ``mode``, ``control``: send commands to a running job."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource
from rich.console import Console

from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import DURATION, json_option, store_option
from laminar_core.cli.views import print_table, wall_time
from laminar_core.driver.commands.client import Asked, ControlClient
from laminar_core.driver.commands.texts import describe_result, requested_mode, require_done
from laminar_core.errors import ConfigurationError
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.objectstore.opening import absolute_uri
from laminar_core.protocol.commands import RequestedMode
from laminar_core.records.commands import (
    Action,
    CancelJob,
    ControlResult,
    SetMode,
    StopJob,
    TakeCheckpoint,
)
from laminar_core.store.attribution import actor_of_environment
from laminar_core.store.command_log import ControlEntry, ControlLog
from laminar_core.units import duration_ms


def command_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all commands to a running job have in common."""
    options = (
        store_option,
        job_option,
        json_option,
        click.option(
            "--timeout",
            type=DURATION,
            default="10 minutes",
            show_default=True,
            help="How long to wait; a command that no driver has begun by then expires.",
        ),
        click.option(
            "--wait/--no-wait", default=True, help="Wait for the result  [default: wait]."
        ),
        click.option(
            "--reason", default="asked for", show_default=True, help="Recorded in the audit log."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    "checkpoint",
    epilog=examples(
        "laminar checkpoints take --store build/store --reason 'before the release'",
    ),
)
@command_options
@click.argument("job_name", metavar="[JOB]", required=False)
@click.pass_context
def checkpoint(
    context: click.Context, *, job_name: str | None, job: str | None, store: str, **how: object
) -> None:
    """Take a checkpoint of a running job now."""
    if job_name is not None and context.get_parameter_source("job") is ParameterSource.COMMANDLINE:
        raise click.UsageError("give the job once")
    ask(store, job_name or job, TakeCheckpoint(), **how)


@click.command(
    epilog=examples(
        "laminar stop --store build/store --reason 'new cluster'",
        "laminar stop --store build/store --savepoint backups/last",
    ),
)
@command_options
@click.option(
    "--savepoint", "target", metavar="TARGET", help="Copy the last checkpoint to a savepoint."
)
@click.option("--cancel", is_flag=True, help="End at once, without a last checkpoint.")
def stop(*, store: str, job: str | None, target: str | None, cancel: bool, **how: object) -> None:
    """Stop a running job after a last checkpoint.

    The job ends when the output of that checkpoint is committed. With --savepoint the last
    checkpoint is copied to TARGET, a new directory or URI; if that fails the job continues.
    """
    if cancel and target is not None:
        raise click.UsageError(
            "--cancel ends the job without a checkpoint, so it cannot be combined with "
            "--savepoint: give one of them"
        )
    action = CancelJob() if cancel else StopJob(target=target and absolute_uri(target))
    ask(store, job, action, **how)


@click.command(
    epilog=examples(
        "laminar mode unaligned --store build/store --reason 'a slow sink'",
        "laminar mode default --store build/store",
    ),
)
@command_options
@click.argument("mode")
def mode(*, store: str, job: str | None, mode: str, **how: object) -> None:
    """Change how the checkpoints of a running job align.

    It holds from the next checkpoint on. MODE is aligned, unaligned, default (as it was started),
    or the time from a checkpoint's trigger until its barriers overtake, as in "5 seconds".
    """
    ask(store, job, SetMode(mode=_requested(mode)), **how)


@click.group()
def control() -> None:
    """Show the commands that were sent to running jobs."""


@control.command(
    "list",
    epilog=examples("laminar control list --store build/store"),
)
@store_option
@job_option
@json_option
def list_commands(*, store: str, job: str | None, as_json: bool) -> None:
    """List the commands of a job and what became of them, oldest first."""
    opened = open_job(store, job)
    entries = ControlLog(opened.objects, opened.paths).entries()
    if as_json:
        click.echo(json.dumps([_as_json(entry) for entry in entries], indent=1))
        return
    headings = ("number", "at", "command", "actor", "generation", "outcome", "what")
    print_table(headings, map(_row, entries))


def ask(  # noqa: PLR0913 - one parameter per option
    store: str,
    job: str | None,
    action: Action,
    *,
    timeout: object,
    wait: object,
    reason: object,
    as_json: object,
) -> None:
    """Send the command, wait for the result, print it.

    Raises:
        ConfigurationError: the job is not running, or its driver refuses.
        LaminarError: the command was not carried out.
    """
    actor = actor_of_environment(str(reason))
    opened, clock = open_job(store, job), SystemClock()
    client = ControlClient(opened, clock)
    timeout_ms = duration_ms(str(timeout))
    asked = client.ask(action, actor=actor, timeout_ms=timeout_ms)
    if not wait:
        _print(asked, None, as_json=bool(as_json))
        return
    with _waiting(asked.number) as progress:
        result = client.wait_until_over(asked, action, timeout_ms, progress)
    _print(asked, result, as_json=bool(as_json))
    require_done(opened.job, asked.number, result)


def _requested(text: str) -> RequestedMode | int:
    try:
        return requested_mode(text)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _waiting(number: int) -> Iterator[Callable[[str], None]]:
    """Show what is waited for, on a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(f"command {number}") as status:
        yield lambda what: status.update(f"command {number}: {what}")


def _print(asked: Asked, result: ControlResult | None, *, as_json: bool) -> None:
    if as_json:
        said = {} if result is None else result.model_dump(mode="json")
        click.echo(json.dumps({"number": asked.number, **said}))
    elif result is None:
        say(f"command {asked.number} is left for generation {asked.generation}")
    elif result.outcome == "completed":
        say(describe_result(result))


def _as_json(entry: ControlEntry) -> dict[str, object]:
    return {
        "number": entry.number,
        "problem": entry.problem,
        **{
            name: None if record is None else record.model_dump(mode="json")
            for name, record in (
                ("command", entry.command),
                ("begun", entry.begun),
                ("result", entry.result),
            )
        },
    }


def _row(entry: ControlEntry) -> tuple[str, ...]:
    command, result = entry.command, entry.result
    waiting = "waiting" if entry.begun is None else "begun"
    outcome = waiting if result is None else result.outcome
    if command is None:
        return str(entry.number), "", "?", "", "", outcome, entry.problem or ""
    return (
        str(entry.number),
        wall_time(command.requested_at_ms),
        command.action.kind,
        command.actor,
        str(command.generation),
        outcome,
        entry.problem or ("" if result is None else describe_result(result)),
    )
