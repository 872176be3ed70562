"""Dagster resources: the checkpoint store, and the driver process of a streaming job."""

from resources.checkpoints import CheckpointStoreResource
from resources.spark_driver import DriverEvent, DriverResult, SparkDriverClient

__all__ = ["CheckpointStoreResource", "DriverEvent", "DriverResult", "SparkDriverClient"]
