"""A Spark session for the command line, the demo and tests."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.runtime.jvm import ensure_java

_DEFAULTS = {
    "spark.python.daemon.module": "laminar_core.runtime.spark_daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}


def open_session(master: str, app_name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with Laminar's defaults; ``conf`` wins over them.

    Raises:
        ConfigurationError: there is no usable Java, or Spark does not start.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in {**_DEFAULTS, **(conf or {})}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"Spark did not start on {master}: {error}"
        ) from error
    spark.sparkContext.setLogLevel("OFF")
    return spark
