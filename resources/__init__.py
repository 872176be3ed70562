"""Dagster resources: the checkpoint store, and the driver process of a streaming job."""

from resources.checkpoints import CheckpointStoreResource
from resources.detached_driver import DetachedDriver
from resources.driver_events import DriverEvent
from resources.spark_driver import DriverResult, SparkDriverClient

__all__ = [
    "CheckpointStoreResource",
    "DetachedDriver",
    "DriverEvent",
    "DriverResult",
    "SparkDriverClient",
]
