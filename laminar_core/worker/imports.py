"""Recognise that a worker cannot import code, which no restart heals.

Spark sends a function of a module by the name of the module, and each worker imports that. So a
module that only the driver finds, because it lies beside the program, is missing there; and so is
Laminar, or what it needs, on a host where it is not installed.
"""

import re

from laminar_core.errors import ConfigurationError, ErrorCode

PROGRAM_PREFIX = "program_"
"""The module of a program's file has a name that begins like this, and is sent by value."""

NEEDED = {
    "datasketches": "datasketches",
    "numpy": "numpy",
    "pandas": "pandas",
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "zmq": "pyzmq",
}
"""Modules that a worker needs besides Laminar, and the packages that have them."""

_PYTHON_SAYS = re.compile(
    r"(?:ModuleNotFoundError|ImportError): .+"
    r"|AttributeError: Can't get attribute .+"
    r"|AttributeError: module '[^']+' has no attribute .+"
)
_STARTING = re.compile(
    r"Error while finding module specification for .+\((ModuleNotFoundError: .+)\)$"
)
"""Python says so of the module that it is to run: here Spark's daemon for workers."""
_PACKAGE = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\w+) .+ must be installed")
_NAMES = re.compile(r"(?:No module named|from|on <module|module) '([^']+)'")


def import_problem(report: str) -> str | None:
    r"""Return Python's line about a failed import in a report of Spark; None if there is none.

    An attribute that is missing counts only where the worker reads what Spark sent to it.

    >>> import_problem("at x\nModuleNotFoundError: No module named 'rates'\nat y")
    "ModuleNotFoundError: No module named 'rates'"
    """
    reads_task = "read_command" in report or "_read_with_length" in report
    for line in map(str.strip, report.splitlines()):
        if (starting := _STARTING.search(line)) is not None:
            return starting[1]
        if (package := _PACKAGE.search(line)) is not None:
            return f"ModuleNotFoundError: No module named '{package[1].lower()}'"
        found = _PYTHON_SAYS.fullmatch(line)
        if found and (reads_task or not line.startswith("AttributeError")):
            return line
    return None


def not_importable(problem: str) -> ConfigurationError:
    """Return the error that says which module it is, and how to give it to the workers."""
    named = _NAMES.search(problem)
    top = named[1].partition(".")[0] if named else ""
    if top == "laminar_core" and "No module" in problem:
        return ConfigurationError(
            ErrorCode.NOT_IMPORTABLE,
            f"the hosts of the workers have no Laminar ({problem}): install it there, or send it "
            "with --ship",
        )
    if top in NEEDED:
        return ConfigurationError(
            ErrorCode.NOT_IMPORTABLE,
            f"the hosts of the workers lack {NEEDED[top]} ({problem}): a worker needs "
            f"{', '.join(NEEDED.values())}; install them there, or send an environment with "
            "--archives (docs/cluster.md). `laminar doctor` names what each host lacks",
        )
    what = f"module {named[1]}" if named else "a module"
    return ConfigurationError(
        ErrorCode.NOT_IMPORTABLE,
        f"the workers cannot import {what} as the driver did ({problem}): give it to Spark with "
        "spark.sparkContext.addPyFile(...) or --py-files, or install it where the workers run",
    )
