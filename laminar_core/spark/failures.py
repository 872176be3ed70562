"""The reason in a report of Spark: what Python said, not what Spark concluded from it."""

import re

REASON_LENGTH_MAX = 300

_PYTHON = re.compile(r"^(?!org\.|java\.|scala\.|py4j\.|pyspark\.)[\w.]*(?:Error|Exception)(?:: |$)")
"""The last line of a traceback of Python."""
_IN_BRACKETS = re.compile(r"\(((?!org\.|java\.)[\w.]*(?:Error|Exception): .+)\)$")
"""Python finds no module to run: its line ends like this."""
_NO_MODULE = re.compile(r"^\S*python\S*: (No module named .+)$")
_NOT_INSTALLED = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (.+)$")
_LOST = re.compile("exited unexpectedly|ExecutorLostFailure|Python worker .*crashed")
_CAUSED_BY = re.compile("^Caused by: ")
_BARRIER = re.compile("Could not recover from a failed barrier")


def reason_of(error: BaseException) -> str:
    """Return the line of an error of Spark that says most; the rest is in Spark's own log."""
    return reason_in(str(error)) or type(error).__name__


def reason_in(report: str) -> str:
    """Return the most informative line of a report of Spark; empty if it has none.

    An error of Python wins over the loss of a process, and that over Spark's own conclusions. Of
    several errors of Python in one traceback, the last one is what ended the worker.
    """
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    for found in (_of_python(lines), *_matching(lines)):
        if found:
            return found[:REASON_LENGTH_MAX]
    return ""


def _of_python(lines: list[str]) -> str:
    for line in lines:
        if (module := _NO_MODULE.match(line)) is not None:
            return module[1]
        if (inside := _IN_BRACKETS.search(line)) is not None:
            return inside[1]
    for line in lines:
        if (package := _NOT_INSTALLED.search(line)) is not None:
            return package[1]
    return next((line for line in lines if _PYTHON.match(line)), "")


def _matching(lines: list[str]) -> list[str]:
    plain = [line for line in lines if not _BARRIER.search(line)]
    choices = (
        [line for line in lines if _LOST.search(line)],
        [line for line in plain if _CAUSED_BY.match(line)],
        plain,
        lines,
    )
    return [found[0] for found in choices if found]
