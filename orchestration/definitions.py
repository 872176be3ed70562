"""The composition root, loaded by ``workspace.yaml``. It starts no process and reads no store."""

import os

import dagster as dg

from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.streams import DEMO, ROOT, STREAMS
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient

STORE_VARIABLE = "LAMINAR_STORE"
"""Environment variable with the URI of the checkpoint store; the demo's if it is not set."""

LOGS_VARIABLE = "LAMINAR_DRIVER_LOGS"
"""Environment variable with the folder for the logs of detached drivers, one per stream in it."""

defs = dg.Definitions.merge(
    laminar_definitions(*STREAMS),
    dg.Definitions(
        executor=dg.in_process_executor,  # One process less between Dagster and the driver.
        resources={
            "laminar_checkpoints": CheckpointStoreResource(
                uri=os.environ.get(STORE_VARIABLE, str(DEMO / "store"))
            ),
            "laminar_driver": SparkDriverClient(),
            "laminar_launcher": DetachedDriver(
                log_directory=os.environ.get(LOGS_VARIABLE, str(ROOT / "build" / "drivers"))
            ),
        },
    ),
)
