"""The daemon has made the slow imports before it forks the first worker."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator

import pyspark
import pytest

from laminar_core.host.process_memory import ARROW_KEPT_MS

SLOW = [
    "laminar_core.worker.worker",
    "laminar_core.connectors.parquet_sink",
    "laminar_core.connectors.parquet_source",
    "laminar_core.operators.aggregation",
    "numpy",
    "pandas",
    "pyarrow.parquet",
    "pyspark.worker",
    "pydantic",
    "zmq",
]
SCRIPT = """
import sys
import laminar_core.spark.daemon as daemon
print(callable(daemon.pyspark.daemon.manager), [m for m in sys.argv[1:] if m not in sys.modules])
"""


def test_a_forked_worker_finds_what_is_slow_to_import() -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, *SLOW]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == "True []\n"


@pytest.mark.spark
def test_workers_keep_memory_of_arrow(spark) -> None:
    def told(_rows: Iterable[int]) -> Iterator[str]:
        yield os.environ["MIMALLOC_PURGE_DELAY"]

    [delay_ms] = spark.sparkContext.parallelize([0], 1).mapPartitions(told).collect()
    assert delay_ms == str(ARROW_KEPT_MS)


@pytest.mark.spark
def test_workers_have_the_installed_pyspark_and_not_its_archive(spark) -> None:
    def where(_rows: Iterable[int]) -> Iterator[tuple[str, list[str]]]:
        yield pyspark.__file__, [entry for entry in sys.path if entry.endswith("pyspark.zip")]

    ((found, archives),) = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert (found, archives) == (pyspark.__file__, [])
