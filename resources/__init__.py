"""Dagster resources: the checkpoint store, and the driver process of a streaming job."""

from laminar_core.host.extras import needs_extra

with needs_extra("dagster", "Dagster resources"):
    from laminar_core.resources.checkpoints import CheckpointStoreResource
    from laminar_core.resources.drivers.detached import DetachedDriver
    from laminar_core.resources.drivers.events import DriverEvent
    from laminar_core.resources.drivers.kubernetes_launcher import KubernetesLauncher
    from laminar_core.resources.drivers.launcher import DriverLauncher
    from laminar_core.resources.drivers.supervised import DriverResult, SparkDriverClient
    from laminar_core.resources.stream_resources import laminar_resources

__all__ = [
    "CheckpointStoreResource",
    "DetachedDriver",
    "DriverEvent",
    "DriverLauncher",
    "DriverResult",
    "KubernetesLauncher",
    "SparkDriverClient",
    "laminar_resources",
]

if __name__ != "laminar_core.resources":
    raise ImportError("`resources` is part of laminar_core: write `import laminar_core.resources`")
