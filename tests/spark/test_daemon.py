"""The daemon has made the slow imports before it forks the first worker."""

import subprocess
import sys

SLOW = [
    "laminar_core.worker.worker",
    "laminar_core.connectors.parquet_sink",
    "laminar_core.connectors.parquet_source",
    "laminar_core.operators.aggregation",
    "numpy",
    "pandas",
    "pyarrow.parquet",
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
