"""Laminar: stateful streaming pipelines that run inside Spark jobs."""

from typing import TYPE_CHECKING

from laminar_core._version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["__version__", "register"]


def register(spark: "SparkSession") -> None:
    """Register the format ``laminar``: Spark can then read state, offsets, history, audit log."""
    # Only who reads checkpoints with Spark needs it: importing anything else stays quick.
    from laminar_core.spark.data_source import register as register_source  # noqa: PLC0415

    register_source(spark)
