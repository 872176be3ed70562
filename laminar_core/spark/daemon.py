"""Spark's Python daemon with Laminar already imported, and memory as workers want it.

Spark forks its Python workers from a daemon. With ``spark.python.daemon.module`` set to this
module the imports are made once, before the fork, and a worker that has to be replaced is ready
about half a second earlier. Everything works without it, too.
"""

# The imports are the purpose, and the path has to be right before them.
# pyright: reportUnusedImport=false
# ruff: noqa: E402

import sys

from laminar_core.host.process_memory import keep_freed_arrow_memory
from laminar_core.spark.installed_pyspark import without_archives

sys.path[:] = without_archives(sys.path)
keep_freed_arrow_memory()

import pandas as pd  # noqa: F401 - pyarrow imports it, one second long, with the first array
import pyspark.daemon
import pyspark.worker

import laminar_core.connectors.parquet_sink
import laminar_core.connectors.parquet_source
import laminar_core.operators.aggregation
import laminar_core.spark.stage  # noqa: F401 - imported for those who are forked

if __name__ == "__main__":
    pyspark.daemon.manager()
