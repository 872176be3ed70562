"""The machine on which benchmarks run."""

import os
import platform
import subprocess
from importlib.metadata import version

import psutil

from benchmarks.record import Machine
from laminar_core import __version__
from laminar_core.spark.jvm import ensure_java


def this_machine() -> Machine:
    """Return the facts that every result carries."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cores=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        java=_java_version(),
        pyspark=version("pyspark"),
        pyarrow=version("pyarrow"),
        laminar=__version__,
    )


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 1)


def _java_version() -> str:
    """Return the version of the Java that Spark is started with."""
    command = [str(ensure_java() / "bin" / "java"), "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - its own words
    return answer.stdout.split()[1]
