"""Compare the memory that state may take in an executor with the memory that Spark allows for it.

State is kept in Python, outside of the JVM's heap. YARN and Kubernetes end a container that takes
more than was asked for, and Spark can be set to limit the address space of Python. Only what is
certain is refused: the budget of RocksDB. What Python itself takes comes on top.
"""

import re

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.spark.facts import SparkFacts

OVERHEAD_MIN_BYTES = 384 << 20
OVERHEAD_SHARE = 0.1
OVERHEAD_SHARE_PYTHON_ON_KUBERNETES = 0.4
"""Spark's defaults: of the executor's heap, and at least so much."""
HEAP_BYTES = 1 << 30
"""Spark's default for ``spark.executor.memory``."""

MEMORY_SETTINGS = (
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.kubernetes.memoryOverheadFactor",
    "spark.executor.pyspark.memory",
)

_SIZE = re.compile(r"(\d+)([kmgtp]?)b?$")
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def size_of(text: str) -> int | None:
    """Return the bytes of a size as Spark writes it, in MiB without a unit; None: it is none.

    >>> size_of("512"), size_of("2g"), size_of("1024k"), size_of("much")
    (536870912, 2147483648, 1048576, None)
    """
    found = _SIZE.match(text.strip().lower())
    return None if found is None else int(found[1]) << _UNITS[found[2] or "m"]


def refuse_little_memory(facts: SparkFacts, state_bytes: int) -> None:
    """Verify that the state of all workers in an executor fits; ``state_bytes`` is one's budget.

    Raises:
        ConfigurationError: Spark, or the cluster manager, would end the workers when their state
            has grown to its budget.
    """
    cores = facts.number("spark.executor.cores", 1) or 1
    workers = cores // (facts.number("spark.task.cpus", 1) or 1)
    python = size_of(facts.settings.get("spark.executor.pyspark.memory", ""))
    if python:
        if state_bytes > python // cores:
            raise _refusal(
                state_bytes,
                f"spark.executor.pyspark.memory allows {_mib(python // cores)} for each of "
                f"{cores} cores",
                f"raise it to {_mib(2 * state_bytes * cores)}",
            )
    elif _is_container(facts) and workers * state_bytes > (overhead := _overhead(facts)):
        raise _refusal(
            state_bytes,
            f"an executor of {workers} workers has {_mib(overhead)} outside of its heap",
            f"set spark.executor.memoryOverhead to {_mib(2 * workers * state_bytes)}",
        )


def _refusal(state_bytes: int, why: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        ErrorCode.SPARK_UNSUITABLE,
        f"the state of a worker may take {_mib(state_bytes)} (--state-memory), and {why}: {remedy} "
        "(--conf), or give state less",
    )


def _is_container(facts: SparkFacts) -> bool:
    return facts.master == "yarn" or facts.master.startswith("k8s://")


def _overhead(facts: SparkFacts) -> int:
    """Return the memory of a container beside the heap."""
    asked = size_of(facts.settings.get("spark.executor.memoryOverhead", ""))
    if asked is not None:
        return asked
    heap = size_of(facts.settings.get("spark.executor.memory", "")) or HEAP_BYTES
    on_kubernetes = facts.master.startswith("k8s://")
    names = ["spark.executor.memoryOverheadFactor"]
    share = OVERHEAD_SHARE
    if on_kubernetes:
        names.append("spark.kubernetes.memoryOverheadFactor")
        share = OVERHEAD_SHARE_PYTHON_ON_KUBERNETES
    for name in names:
        try:
            share = float(facts.settings[name])
            break
        except (KeyError, ValueError):
            continue
    return max(OVERHEAD_MIN_BYTES, int(share * heap))


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20}m"
