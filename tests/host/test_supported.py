"""Where Laminar cannot run, its first line says so."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from laminar_core.host.supported import PYSPARK_END, PYSPARK_MIN, PYTHON_MIN, unsupported

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("platform", "python", "pyspark", "said"),
    [
        ("win32", (3, 12), "4.3.0", "Windows is not supported"),
        ("linux", (3, 10), "4.3.0", "Python 3.10 is not supported"),
        ("linux", (3, 11), "3.5.9", "PySpark 3.5.9 is not supported"),
        ("linux", (3, 11), "4.4.0", "PySpark 4.4.0 is not supported"),
        ("linux", (3, 11), None, "PySpark is not installed"),
        ("linux", (3, 11), "4.0.0", None),
        ("linux", (3, 11), "4.3.0", None),
        ("linux", (3, 13), "4.3.0.dev1", None),
        ("darwin", (3, 12), "4.3.1", None),
    ],
)
def test_what_is_not_supported_is_said_with_a_way_out(platform, python, pyspark, said) -> None:
    problem = unsupported(platform, python, pyspark)
    assert (problem or "").startswith(said or "")
    assert (problem is None) == (said is None)


def test_bounds_are_those_of_the_package() -> None:
    bounds = "pyspark>={}.{},<{}.{}".format(*PYSPARK_MIN, *PYSPARK_END)
    assert bounds in PROJECT["dependencies"]
    assert PROJECT["requires-python"] == ">={}.{}".format(*PYTHON_MIN)


def test_the_command_ends_before_an_import_fails() -> None:
    # The standard library itself asks for the platform when it is imported.
    program = "import shutil, sys; sys.platform = 'win32'; import laminar_core.cli"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: Windows is not supported: run Laminar in WSL, or in a Linux container\n"
    )
