"""The task that runs on each slot of the cluster; it needs nothing but Python and Spark.

Spark gets this module by value, so a host without Laminar can say that it has none. Therefore it
imports only the standard library, and the rest within functions.
"""

# PySpark has no types for what a task gets.
# pyright: reportUnknownMemberType=false

import json
import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

DISTRIBUTIONS = ("laminar-core", "pyspark", "pyarrow", "numpy", "pandas", "pydantic", "pyzmq")
"""Their versions are reported. Laminar itself may have been sent with the job."""


def task_for(payload: bytes) -> Callable[[Iterator[object]], Iterator[str]]:
    """Return the function of the task; ``payload`` is the pickled ``Request``."""

    def run(rows: Iterator[object]) -> Iterator[str]:
        from pyspark import BarrierTaskContext  # noqa: PLC0415 - see above

        del rows
        context: Any = BarrierTaskContext.get()
        index = context.partitionId()
        host = context.getTaskInfos()[index].address.rpartition(":")[0]
        yield json.dumps(report(payload, index, host, context.allGather))

    return run


def report(
    payload: bytes, index: int, host: str, gather: Callable[[str], list[str]]
) -> dict[str, object]:
    """Return the facts of one task, in the form of ``HostFacts``.

    ``gather`` sends a text to all tasks and returns those of all. Each task calls it equally often,
    whatever fails, because the others wait for it.
    """
    found: dict[str, object] = {
        "task": index,
        "host": host,
        "python": platform.python_version(),
        "versions": versions(),
    }
    examine: Any = None
    try:
        from laminar_core.spark.doctor.joint import examine  # noqa: PLC0415 - see above
    except ImportError as error:
        found["problem"] = f"{type(error).__name__}: {error}"
    everywhere = all(answer == "yes" for answer in gather("no" if examine is None else "yes"))
    if everywhere and examine is not None:
        found["joint"] = examine(payload, index, host, gather).model_dump()
    return found


def versions() -> dict[str, str | None]:
    """Return the version of each distribution; None: it is not installed.

    A Laminar that came with the job is no distribution, and says its version itself.
    """
    found: dict[str, str | None] = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    try:
        from laminar_core._version import __version__  # noqa: PLC0415 - see above
    except ImportError:
        found["laminar-core"] = None
    else:
        found["laminar-core"] = __version__
    return found
