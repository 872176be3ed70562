"""Make the archive from which later JVMs start: ``python -m laminar_core.spark.archive_making``."""

# PySpark has no public name for the process that it starts.
# pyright: reportPrivateUsage=false

import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.spark.caches import cache_folders
from laminar_core.spark.class_archive import SILENT, archive_name, find_archive
from laminar_core.spark.jvm import ensure_java
from laminar_core.spark.quiet import JAVA_OPTIONS
from laminar_core.spark.session import FAST_START, open_session
from laminar_core.spark.warm_up import warm_up

END_MAX_S = 120
"""How long a JVM may take to write its archive; two seconds are usual."""


def make_archive() -> Path:
    """Make the archive for the Java and the Spark that this process would use; return its path.

    Does nothing if it is there. It starts Spark and ends it, so this process has none before and
    after. The archive appears by one rename, whole or not at all, so any number of processes may
    do this at once.

    Raises:
        ConfigurationError: there is no usable Java, it makes no archive, or none can be kept.
    """
    name = archive_name(ensure_java())
    if found := find_archive(name):
        return found
    for folder in cache_folders():  # A user may not be allowed to write into the environment.
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".archive-", dir=folder) as scratch:
                return _written(Path(scratch)).rename(folder / name)
    raise _failed("no folder can be written: " + ", ".join(map(str, cache_folders())))


def _written(scratch: Path) -> Path:
    """Start Spark, do what a job does, and let the JVM write what it has loaded."""
    draft = scratch / "draft.jsa"
    options = f"{FAST_START} -XX:ArchiveClassesAtExit={draft} {SILENT}"
    spark = open_session("local[2]", "laminar class archive", {JAVA_OPTIONS: options})
    jvm: Any = SparkContext._gateway  # noqa: SLF001 - the only one who knows the process
    try:
        _work(spark, scratch / "rows")
        spark.stop()
    finally:
        jvm.proc.stdin.close()  # The JVM ends with this pipe, as it does when a driver ends.
    try:
        jvm.proc.wait(END_MAX_S)
    except TimeoutExpired:
        jvm.proc.kill()
        raise _failed(f"Java did not end within {END_MAX_S} s") from None
    if not draft.is_file():
        raise _failed("this Java writes none")
    return draft


def _work(spark: SparkSession, rows: Path) -> None:
    """Load the classes that jobs and queries of theirs need: stages with Python, SQL, Parquet."""
    warm_up(spark, 2)
    spark.range(0, 2, 1, 2).mapInArrow(_nothing, "id long", barrier=True).toArrow()
    spark.range(100).selectExpr("id % 3 as key", "id").write.parquet(str(rows))
    spark.read.parquet(str(rows)).where("id > 1").groupBy("key").count().orderBy("key").toArrow()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def _failed(reason: str) -> ConfigurationError:
    return ConfigurationError(
        ErrorCode.SPARK_UNSUITABLE, f"no archive of Spark's classes was made: {reason}"
    )


def _main() -> int:
    try:
        print(make_archive())  # noqa: T201 - the answer of this command
    except LaminarError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
