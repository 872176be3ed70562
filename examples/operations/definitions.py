"""The code location of the operations demo; ``laminar_definitions`` makes all of it."""

import dagster as dg

from examples.operations.stream import folder, slow_payments
from laminar_core.orchestration import laminar_definitions
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient

defs = dg.Definitions.merge(
    laminar_definitions(slow_payments(folder())),
    dg.Definitions(
        executor=dg.in_process_executor,
        resources={
            "laminar_checkpoints": CheckpointStoreResource(uri=str(folder() / "store")),
            "laminar_driver": SparkDriverClient(),
            "laminar_launcher": DetachedDriver(log_directory=str(folder() / "drivers")),
        },
    ),
)
