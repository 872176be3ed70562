"""The entry point: groups the commands and turns every error into one line and an exit code."""

import atexit
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

import click

from laminar_core._version import __version__
from laminar_core.cli.command_list import ALIASES, SECTIONS
from laminar_core.cli.completion import complete
from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.groups import LazyGroup, examples
from laminar_core.errors import LaminarError
from laminar_core.host.terminal import say
from laminar_core.store.audit_key import key_kept_private

NO_OUTPUT_EXIT_CODE = 1
"""The output cannot be written: it has no reader (then Click exits with this), or a full disk."""

UNEXPECTED_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130
COLLECTED_OBJECTS = 50_000
"""New objects after which Python looks for garbage; its own 700 cost a tenth of a short command,
because imports and records make many objects, and all of them stay.
"""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "laminar run jobs/payments.py --store build/store --set input=in --set output=out",
        "laminar status --store build/store",
        "laminar checkpoints list --store build/store",
        'eval "$(_LAMINAR_COMPLETE=bash_source laminar)"     # completes words in bash',
    ),
)
@click.version_option(__version__, prog_name="laminar")
@click.option("--debug", is_flag=True, help="Show tracebacks and Spark's log.")
@click.pass_context
def laminar(context: click.Context, *, debug: bool) -> None:
    """Run stateful streaming pipelines inside Spark jobs, and manage their checkpoints.

    `laminar COMMAND --help` has the options and examples of a command.
    """
    context.obj = GlobalSettings(debug)


def main() -> None:
    """Run the command line and exit."""
    open_what_is_closed()
    gc.set_threshold(COLLECTED_OBJECTS)
    atexit.register(gc.freeze)  # Else the end looks for garbage: 50 ms after 10,000 checkpoints.
    complete()
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
        if isinstance(error, OSError) and _takes_nothing(sys.stdout):
            _say(f"error: standard output cannot be written: {error.strerror}")
            sys.exit(NO_OUTPUT_EXIT_CODE)
        _say(f"error: {type(error).__name__}: {error}".splitlines()[0])
        _say("this is not expected: run again with `laminar --debug …`")
        sys.exit(UNEXPECTED_EXIT_CODE)


def _say(line: str) -> None:
    with suppress(OSError):  # The disk is full, or nobody reads: the exit code says it, too.
        say(line, err=True)


def open_what_is_closed() -> None:
    """Let standard streams that were closed lead nowhere: then a command ends as it would.

    Python has None in their place, and the next file that is opened would get their number, here
    or in a process that is started.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(  # noqa: SIM115 - it stays open
                mode, encoding="utf-8", errors="backslashreplace"
            )
            setattr(sys, name, nowhere)
            if nowhere.fileno() == number:
                os.set_inheritable(number, True)  # noqa: FBT003 - that is its only argument
            elif not _is_open(number):
                os.dup2(nowhere.fileno(), number)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _takes_nothing(stream: TextIO) -> bool:
    """Return whether what the stream holds back cannot be written."""
    try:
        stream.flush()
    except OSError:
        return True
    return False


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
