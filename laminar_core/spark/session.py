"""A Spark session for the command line, the demo and tests."""

# PySpark ships no types for what it starts Java with.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

# PySpark has no public names for these.
# pyright: reportPrivateUsage=false

import os
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.spark.class_archive import with_archive
from laminar_core.spark.jvm import ensure_java
from laminar_core.spark.quiet import JAVA_OPTIONS, without_chatter, without_logging
from laminar_core.spark.shipping import DAEMON, ship
from laminar_core.store.audit_key import key_kept_private

FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A driver of its own only schedules: a JVM that starts fast is better than one that peaks high."""

_DEFAULTS = {
    JAVA_OPTIONS: FAST_START,
    "spark.python.daemon.module": "laminar_core.spark.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}


def open_session(
    master: str,
    app_name: str,
    conf: Mapping[str, str] | None = None,
    *,
    show_logs: bool = False,
    shipped: Iterable[Path] | None = None,
) -> SparkSession:
    """Start Spark with Laminar's defaults; ``conf`` wins over them.

    ``shipped`` sends Laminar, and the modules that are loaded from these folders, to the executors.

    Spark logs nothing unless ``conf`` sets its logging up, or ``show_logs`` leaves it alone.

    Raises:
        ConfigurationError: there is no usable Java, or Spark does not start.
    """
    require_instance(master, str, "master must be text, such as local[2]")
    require_instance(app_name, str, "app_name must be text")
    require_instance(
        conf, Mapping | None, 'conf must be settings, as in {"spark.ui.enabled": "true"}'
    )
    java_home = ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    defaults = _DEFAULTS if shipped is None else {**_DEFAULTS, **DAEMON}
    settings = with_archive({**defaults, **(conf or {})}, java_home)
    if not show_logs:
        settings = without_logging(settings)
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with nullcontext() if show_logs else without_chatter():
            _start_jvm({**settings, "spark.master": master, "spark.app.name": app_name})
            spark = builder.getOrCreate()
            if shipped is not None:
                ship(spark, shipped)
            return spark
    except LaminarError:
        raise
    except Exception as error:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"Spark did not start on {master}: {_why(error)}"
        ) from error


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM in a process group of its own, unless this process has one.

    ``timeout``, a shell or a terminal sends its signals to the whole group of the driver, which
    still needs the JVM for the last checkpoint. The JVM ends with the driver, whose pipe it reads;
    but only once it is up: a JVM that finds PySpark gone before that stays for ever. So an
    interrupt, which only the main thread gets, waits until then.
    """
    if SparkContext._gateway is None:  # noqa: SLF001 - PySpark starts it as a side effect only
        conf = SparkConf().setAll(list(settings.items()))
        with key_kept_private(), ThreadPoolExecutor(1, "laminar-jvm") as other_thread:
            gateway = other_thread.submit(launch_gateway, conf, {"process_group": 0}).result()
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def _why(error: Exception) -> str:
    """Return the most informative line: the Java exception if there is one, or the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (thrown or lines or [type(error).__name__])[0]
