"""Make a session do everything once that only its first stage of workers has to wait for.

The first stage loads classes of the JVM, starts Spark's Python daemon, and waits for its imports:
3.4 s of the 9 s that a driver needs to replace another one (docs/adr/0111).
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from laminar_core.spark.stage import OUTPUT_DDL


def warm_up(spark: SparkSession, workers: int) -> None:
    """Run an empty stage in the way in which workers are run; blocks until it has ended."""
    tasks = spark.range(0, workers, 1, workers)
    tasks.mapInArrow(_nothing, OUTPUT_DDL, barrier=True).toArrow()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass  # As a worker does with its empty row.
    yield from ()
