"""Laminar: stateful streaming pipelines that run inside Spark jobs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let ``spark.read.format("laminar")`` read checkpoints: state, offsets, history, audit."""
    # Only who reads checkpoints with Spark needs it: importing anything else stays quick.
    from laminar_core.spark.data_source import register as register_source  # noqa: PLC0415

    register_source(spark)
