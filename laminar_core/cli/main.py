"""The entry point: groups the commands and turns every error into one line and an exit code."""

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

import click

from laminar_core._version import __version__
from laminar_core.cli.audit import audit
from laminar_core.cli.bench import bench
from laminar_core.cli.checkpoints import checkpoints
from laminar_core.cli.config import config
from laminar_core.cli.control import checkpoint, control, mode, stop
from laminar_core.cli.drill import drill
from laminar_core.cli.drills import drills
from laminar_core.cli.options import GlobalSettings
from laminar_core.cli.recover import recover
from laminar_core.cli.retention import retention
from laminar_core.cli.run import run
from laminar_core.cli.savepoints import savepoint
from laminar_core.cli.simulate import simulate
from laminar_core.cli.status import jobs, status
from laminar_core.cli.top import top
from laminar_core.errors import LaminarError
from laminar_core.store.audit_key import key_kept_private

UNEXPECTED_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="laminar")
@click.option("--debug", is_flag=True, help="Show tracebacks and Spark's log.")
@click.pass_context
def laminar(context: click.Context, *, debug: bool) -> None:
    """Run stateful streaming pipelines inside Spark jobs, and manage their checkpoints."""
    context.obj = GlobalSettings(debug)


laminar.add_command(run)
laminar.add_command(recover)
laminar.add_command(drill)
laminar.add_command(drills)
laminar.add_command(config)
laminar.add_command(status)
laminar.add_command(top)
laminar.add_command(jobs)
laminar.add_command(checkpoint)
laminar.add_command(savepoint)
laminar.add_command(stop)
laminar.add_command(mode)
laminar.add_command(control)
laminar.add_command(checkpoints)
laminar.add_command(retention)
laminar.add_command(audit)
laminar.add_command(bench)
laminar.add_command(simulate)


def main() -> None:
    """Run the command line and exit."""
    try:
        with key_kept_private():  # Before a pipeline is imported, and before anything is started.
            _run_command()
    finally:
        let_go_of_output(sys.stdout, sys.stderr)


def _run_command() -> None:
    try:
        with _terminated_is_interrupted():
            laminar(prog_name="laminar", standalone_mode=False)
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        sys.exit(INTERRUPTED_EXIT_CODE)
    except LaminarError as error:
        _show_traceback_if_asked()
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever it is, the user gets one line
        _show_traceback_if_asked()
        _say(f"error: {type(error).__name__}: {error}".splitlines()[0])
        _say("this is not expected: run again with `laminar --debug …`")
        sys.exit(UNEXPECTED_EXIT_CODE)


def _say(line: str) -> None:
    with suppress(OSError):  # The disk is full, or nobody reads: the exit code says it, too.
        click.echo(line, err=True)


def let_go_of_output(*streams: TextIO) -> None:
    """Flush the streams, and give up what cannot be written.

    Python flushes them once more as it ends, and a failure then replaces the exit code by 120.
    """
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: what it holds is let go, what is temporary deleted.

    Only the first one: ``timeout`` sends two, and the second must not end the tidying up.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_traceback_if_asked() -> None:
    if "--debug" in sys.argv:
        with suppress(OSError):
            traceback.print_exc()
