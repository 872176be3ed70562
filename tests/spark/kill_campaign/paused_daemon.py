"""Laminar's Python daemon for Spark, whose workers can be held from their first breath."""

import pyspark.daemon

import laminar_core.spark.daemon  # noqa: F401 - for its imports
from tests.spark.kill_campaign import pauses

if __name__ == "__main__":
    pauses.install("worker")
    pyspark.daemon.manager()
