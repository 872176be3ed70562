"""A whole job in real processes: rows of one Kafka topic into another, with steps to be hit at.

``python -m verification.brokers.relay SETTINGS`` runs its driver, and prints one event a line.
"""

import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from laminar_core.connectors.base import CommitListener, Committer, SinkWriter
from laminar_core.connectors.kafka import KafkaConnection, KafkaSource
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.outlook import Promise
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.events import JobEvent
from laminar_core.driver.options import JobOptions
from laminar_core.driver.restart import FixedDelay
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import LaminarError
from laminar_core.host.clock import SystemClock
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.staging import StagingArea
from verification.brokers.outgoing import DELIVERIES, FLAWED, Delivery
from verification.brokers.strikes import reach
from verification.processes.cluster import ProcessCluster

COLUMNS = pa.schema([("id", pa.int64()), ("key", pa.int64())])
WORKER_STEPS = ("opened", "written", "barrier", "pre-committed", "told")
"""The steps of a writer; ``told``: it knows that a commit is recorded."""
REFUSED_CODE = 2
_REGISTER_MS, _SILENCE_MS = 30_000, 4_000
"""A worker that sleeps is replaced within seconds, and not within minutes."""


class RelaySettings(BaseModel):
    """The settings of one driver."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str
    store: str
    bootstrap: str
    source: str
    sink: str
    delivery: str = "staged"
    """A name in ``DELIVERIES`` or ``FLAWED``."""
    client: dict[str, str] = {}
    """Settings of the client."""
    workers: int = 2
    interval_ms: int = 200
    max_uncommitted: int = 10
    take_over: bool = False
    transaction_timeout: str | None = None
    batch_messages: int = 100


class _SteppedWriter:
    """A writer that tells its steps."""

    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)
        if batch.num_rows:
            reach("written")

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        pending = self._writer.snapshot(checkpoint_id)
        reach("barrier")

        def offer() -> Snapshot:
            offered = pending()
            if offered.committables:
                reach("pre-committed")
            return offered

        return offer

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        self._writer.restore(snapshots)

    def committed(self, checkpoint_id: CheckpointId) -> None:
        if isinstance(self._writer, CommitListener):
            self._writer.committed(checkpoint_id)
        reach("told")

    def collected(self) -> Iterable[pa.RecordBatch]:
        return self._writer.collected()

    def close(self) -> None:
        self._writer.close()


class SteppedSink:
    """The sink of a delivery, which tells the steps of its writers and of its committer."""

    def __init__(self, sink: KafkaSink, delivery: str) -> None:
        self._sink = sink
        self._delivery = delivery

    def describe(self) -> JsonObject:
        """Return the description of the sink."""
        return self._sink.describe()

    def check(self, schema: pa.Schema, promise: Promise) -> Sequence[str]:
        """Check the sink."""
        return self._sink.check(schema, promise)

    def open(self, context: SubtaskContext, schema: pa.Schema) -> SinkWriter:
        """Create the writer."""
        writer = _SteppedWriter(self._sink.open(context, schema))
        reach("opened")
        return writer

    def committer(self, staging: StagingArea) -> Committer:
        """Return the committer."""
        return delivery_of(self._delivery).committer(self._sink, staging, _reach)


def delivery_of(name: str) -> Delivery:
    """Return the delivery of this name, right or wrong."""
    return {**DELIVERIES, **FLAWED}[name]


def plan_of(settings: RelaySettings) -> Pipeline:
    """Return the pipeline."""
    connection = KafkaConnection(settings.bootstrap, settings.client)
    kind: Literal["staged", "transaction"] = (
        delivery_of(settings.delivery).sink(connection, settings.sink).delivery
    )
    sink = KafkaSink(
        connection, settings.sink, key="key", delivery=kind,
        transaction_timeout=settings.transaction_timeout,
    )  # fmt: skip
    source = KafkaSource(
        connection, settings.source, COLUMNS, batch_messages=settings.batch_messages
    )
    pipeline = Pipeline("relay")
    pipeline.source("in", source).sink("out", SteppedSink(sink, settings.delivery))
    return pipeline


def run(settings: RelaySettings) -> int:
    """Run the driver until it is stopped (SIGTERM), and return its exit code."""
    options = JobOptions(
        job=settings.job,
        store_uri=settings.store,
        parallelism=settings.workers,
        checkpoint=CoordinatorConfig(
            settings.interval_ms,
            max_uncommitted=settings.max_uncommitted,
            tolerable_failures=None,
        ),
        restart=FixedDelay(attempts=100, pause_ms=50),
        take_over=settings.take_over,
        deadlines=Deadlines(register_ms=_REGISTER_MS, silence_ms=_SILENCE_MS),
    )
    store = CheckpointStore.open(settings.store, settings.job)
    plan = plan_of(settings).plan()
    supervisor = Supervisor(ProcessCluster(), plan, options, store, SystemClock(), _print)

    def stop(*_: object) -> None:
        supervisor.stop()

    signal.signal(signal.SIGTERM, stop)
    try:
        supervisor.run()
    except LaminarError as error:
        print_line(f'{{"event":"refused","code":"{error.code}"}}')
        print(error, file=sys.stderr)  # noqa: T201 - the last words, which a verdict quotes
        return REFUSED_CODE
    return 0


def _reach(step: str) -> None:
    """Come to a step of the driver, which says so before it falls asleep."""
    reach(step, lambda: print_line('{"event":"asleep"}'))


def _print(event: JobEvent) -> None:
    print_line(event.model_dump_json())


def print_line(line: str) -> None:
    """Print a line for the process that waits, in one call: several threads have events.

    ``print`` writes the line and its end apart, so those of two threads can come to stand in one.
    """
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run(RelaySettings.model_validate_json(sys.argv[1])))
