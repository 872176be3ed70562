"""Dagster resources: the checkpoint store, and the driver process of a streaming job."""

from resources.checkpoints import CheckpointStoreResource
from resources.drivers.detached import DetachedDriver
from resources.drivers.events import DriverEvent
from resources.drivers.supervised import DriverResult, SparkDriverClient

__all__ = [
    "CheckpointStoreResource",
    "DetachedDriver",
    "DriverEvent",
    "DriverResult",
    "SparkDriverClient",
]
