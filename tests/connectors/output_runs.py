"""A writer and a committer of Parquet output that run a job of five checkpoints, and may die."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.dataset as ds

from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.operators.base import SubtaskContext
from laminar_core.worker.sinks import CommittingSink

SCHEMA = pa.schema([("n", pa.int64())])
INTERVAL = 10
ROWS = 50


def open_writer(sink, generation, subtask=0):
    """A writer as the runtime uses it: committables are carried until they are committed."""
    return CommittingSink(sink.open(SubtaskContext("sink", subtask, 2, 128, generation), SCHEMA))


def batch(start, stop):
    return pa.record_batch({"n": pa.array(range(start, stop), pa.int64())})


def stage(sink, start, stop, *, checkpoint_id=1, generation=1, subtask=0):
    """Committables of rows [start, stop), staged by a writer of its own."""
    writer = open_writer(sink, generation, subtask)
    writer.write(batch(start, stop))
    return writer.snapshot(checkpoint_id)().committables


def committed(path):
    table = read_committed(path)
    return sorted(table["n"].to_pylist()) if table.num_columns else []


def visible(path):
    """Return the rows that a reader of the plain directory sees; fail on a partial file."""
    return sorted(ds.dataset(path, schema=SCHEMA, format="parquet").to_table()["n"].to_pylist())


class Death(BaseException):
    """The process is gone: nothing catches it."""


@dataclass
class Job:
    """A driver and one writer: the checkpoint is ``completed`` before its output is committed."""

    sink: ParquetSink
    declined: frozenset[int] = frozenset()
    generation: int = 0
    completed: tuple[int, int, tuple] = (0, 0, ())
    next_id: int = 1
    writers: list = field(default_factory=list)

    def run(self):
        self.generation += 1
        checkpoint_id, position, committables = self.completed
        committer = self.sink.committer()
        committer.commit(checkpoint_id, committables)
        committer.withdraw_after(checkpoint_id, self.generation)
        committer.discard_uncommitted(self.generation)
        writer = open_writer(self.sink, self.generation)
        self.writers.append(writer)
        while position < ROWS:
            position = self.run_interval(writer, committer, position)

    def run_interval(self, writer, committer, start):
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        stop = start + INTERVAL
        for at in range(start, stop, 5):
            writer.write(batch(at, at + 5))
        snapshot = writer.snapshot(checkpoint_id)()
        if checkpoint_id not in self.declined or stop == ROWS:
            self.completed = (checkpoint_id, stop, snapshot.committables)
            committer.commit(checkpoint_id, snapshot.committables)
            writer.committed(checkpoint_id)
        return stop
