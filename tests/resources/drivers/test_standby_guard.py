"""The process that a standby is before it becomes its program."""

import os
import subprocess
import sys
from pathlib import Path

from laminar_core.resources.drivers import standby_guard


def test_it_notes_its_id_and_becomes_the_program(tmp_path: Path) -> None:
    """Goal: the id is known also if whoever started the standby has died."""
    guard = standby_guard.__file__
    descriptor = os.open(tmp_path / "lock", os.O_WRONLY | os.O_CREAT)
    program = [sys.executable, "-c", "import os; print(os.getpid())"]
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", guard, str(descriptor), *program],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(descriptor,),
        ) as process:
            printed, _ = process.communicate()
    finally:
        os.close(descriptor)
    assert printed == (tmp_path / "lock").read_text() == f"{process.pid}\n"
