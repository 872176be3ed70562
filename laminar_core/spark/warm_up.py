"""Make a session do everything once that only its first stage of workers has to wait for.

The first stage loads classes of the JVM, starts Spark's Python daemon, and waits for its imports:
3.4 s of the 9 s that a driver needs to replace another one (docs/adr/0111).
"""

from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from laminar_core.spark.stage import Output, run_tasks


def warm_up(spark: SparkSession, workers: int) -> None:
    """Run an empty stage in the way in which workers are run; blocks until it has ended."""
    run_tasks(spark, workers, _nothing)


def _nothing(rows: Iterable[int]) -> Iterator[Output]:
    for _ in rows:
        pass  # As a worker does with its only one.
    yield from ()
