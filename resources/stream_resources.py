"""The resources that streams need, under the keys by which they ask for them."""

from typing import Any

import dagster as dg

from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.detached import DetachedDriver
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import CHECKPOINTS_KEY, DRIVER_KEY, LAUNCHER_KEY


def laminar_resources(
    store: str,
    *,
    logs: str | None = None,
    driver: SparkDriverClient | None = None,
    launcher: DriverLauncher | None = None,
) -> dict[str, dg.ConfigurableResource[Any]]:
    """Return the resources of all streams of a code location, for ``Definitions(resources=…)``.

    ``store`` is the URI of the checkpoint store, ``logs`` the folder for the logs of detached
    drivers. Either may be a ``dagster.EnvVar``, which is read when a run needs it. ``driver`` and
    ``launcher`` replace the default ones. The keys begin with ``laminar_``.

    >>> sorted(laminar_resources("s3://bucket/streams"))
    ['laminar_checkpoints', 'laminar_driver', 'laminar_launcher']
    """
    if launcher is None:
        launcher = DetachedDriver() if logs is None else DetachedDriver(log_directory=logs)
    return {
        CHECKPOINTS_KEY: CheckpointStoreResource(uri=store),
        DRIVER_KEY: driver or SparkDriverClient(),
        LAUNCHER_KEY: launcher,
    }
