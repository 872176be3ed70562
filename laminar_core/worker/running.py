"""The life of a worker in its process, from its start to the end of its generation."""

import os
from collections.abc import Iterator

import pyarrow as pa

from laminar_core.host.clock import SystemClock
from laminar_core.link.transport import WorkerTransport
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.life import living
from laminar_core.worker.snapshots import background_threads
from laminar_core.worker.worker import Worker


def run_worker(
    deployment: Deployment,
    index: int,
    host: str,
    transport: WorkerTransport,
    store: CheckpointStore,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Run it until the coordinator ends it; then yield the collected rows as (sink, batch)."""
    with background_threads() as threads:
        worker = Worker(deployment, index, transport, store, threads, SystemClock())
        try:
            worker.start(host)
            worker.register(os.getpid(), host)
            with living(worker.signs):
                yield from worker.run()
        except Exception as error:
            worker.failed(error)
            raise
        finally:
            worker.close()
