"""The life of a worker in its process: it ends in order, however its work ends."""

import pyarrow as pa
import pytest

from laminar_core.connectors import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.messages import WorkerFailed, decode_to_coordinator
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.types import Generation
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing import MemorySource
from laminar_core.testing.network import Network, SimulatedWorkerTransport
from laminar_core.testing.world import Process, World
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.running import run_worker


def test_a_worker_that_cannot_start_tells_the_coordinator_why():
    p = Pipeline("job")
    p.source("in", MemorySource([pa.table({"n": [1]})])).sink("out", CollectSink())
    deployment = Deployment(
        "job", Generation(1), 1, p.plan(), "memory://", CoordinatorAddress("ipc", "c"), None, "abc"
    )
    world = World(0)
    network, owner = Network(world), Process(world, "worker")
    network.bind("c", owner)
    transport = SimulatedWorkerTransport(network, "c", 0, owner)
    store = CheckpointStore(MemoryObjectStore(), "job")  # Not the one in which the job is claimed.
    with pytest.raises(ConfigurationError) as caught:
        list(run_worker(deployment, 0, "here", transport, store))
    assert caught.value.code is ErrorCode.STORE_NOT_SHARED
    world.clock.wait_ms(1_000)
    (told,) = [decode_to_coordinator(data) for data in network.receive("c", 10)]
    assert isinstance(told, WorkerFailed)
    assert (told.code, told.restart_helps) == ("store-not-shared", False)
