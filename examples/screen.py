"""The frame of a demonstration: one at a time, quiet, and one line per failure."""

import fcntl
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from rich.console import Console

from laminar_core.errors import LaminarError
from laminar_core.orchestration.streams import ROOT

_STANDARD = (1, 2)
"""Output and error, as every process that is started inherits them."""

_WIDTH = 100
"""Width of the screen without a terminal."""


def perform(act: Callable[[Console], int], folder: Path) -> int:
    """Run ``act``, which may be there once per folder; returns its exit code, or 1."""
    os.chdir(ROOT)  # The paths of dagster.yaml are relative to it.
    log = folder / "demo.log"
    with alone(folder / ".lock") as is_alone:
        if not is_alone:
            sys.stderr.write("demo: another one is running in this folder\n")
            return 1
        with quiet(log) as console:
            try:
                return act(console)
            except (LaminarError, dg.Failure) as error:
                console.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
            except Exception as error:  # noqa: BLE001 - this is the outermost place
                traceback.print_exc()
                console.print(f"demo: {error!r}", style="red", markup=False, soft_wrap=True)
            console.print(f"What Spark and Dagster said is in {log}", soft_wrap=True)
            return 1


@contextmanager
def alone(lock: Path) -> Iterator[bool]:
    """Yield whether the lock is free; hold it until the end of the block."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def quiet(log: Path) -> Iterator[Console]:
    """Send the output of Spark and Dagster into ``log``.

    The yielded console writes to the screen.
    """
    screen = os.fdopen(os.dup(_STANDARD[0]), "w")
    console = Console(file=screen, width=None if screen.isatty() else _WIDTH)
    kept = [(stream, os.dup(stream)) for stream in _STANDARD]
    with log.open("w") as file, screen:
        try:
            for stream, _ in kept:
                os.dup2(file.fileno(), stream)
            yield console
        finally:
            sys.stdout.flush()
            for stream, original in kept:
                os.dup2(original, stream)
                os.close(original)
