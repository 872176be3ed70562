"""Workers in threads of one process run a job to its end; their failure is reported."""

import pyarrow as pa
import pytest

from laminar_core.connectors import CollectSink
from laminar_core.driver.listening import NOBODY
from laminar_core.driver.local_cluster import LocalCluster
from laminar_core.driver.options import JobOptions
from laminar_core.driver.restart import FixedDelay
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import JobFailedError
from laminar_core.host.clock import SystemClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing import MemorySource

TABLES = [pa.table({"n": list(range(first, first + 10))}) for first in (0, 10)]


def supervisor(function, restarts: int = 0) -> Supervisor:
    p = Pipeline("local")
    rows = (
        p.source("in", MemorySource(TABLES))
        .key_by("n")
        .rows()
        .map(function, schema=TABLES[0].schema)
    )
    rows.sink("out", CollectSink())
    clock, store = SystemClock(), CheckpointStore(MemoryObjectStore("local"), "local")
    options = JobOptions(
        job="local",
        store_uri=store.objects.uri,
        parallelism=2,
        checkpoint=CoordinatorConfig(interval_ms=None),
        restart=FixedDelay(restarts),
    )
    return Supervisor(LocalCluster(store, clock), p.plan(), options, store, clock, NOBODY)


def test_several_workers_exchange_rows_and_hand_them_over():
    result = supervisor(lambda batch: batch).run()
    assert sorted(result.collected["out"].column("n").to_pylist()) == list(range(20))


def test_a_worker_that_fails_costs_a_generation_and_no_row():
    failures = iter([ValueError("seven")])

    def fail_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and (error := next(failures, None)) is not None:
            raise error
        return batch

    result = supervisor(fail_once, restarts=1).run()
    assert result.generations == 2
    assert sorted(result.collected["out"].column("n").to_pylist()) == list(range(20))


def test_a_worker_that_fails_again_ends_the_job_with_its_own_words():
    def fail(_: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("seven")

    with pytest.raises(JobFailedError, match="ValueError: seven"):
        supervisor(fail).run()
