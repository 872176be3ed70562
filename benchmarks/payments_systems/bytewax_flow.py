"""Bytewax, with Arrow written by hand: batches of generated rows, one process per worker.

    python -m benchmarks.payments_systems.bytewax_flow FOLDER WORKERS

Items are whole batches, because Bytewax takes seconds for a million single rows. Each batch is
combined by merchant and window, divided by merchant, and merged where its merchants belong. State
is kept for a restart every second. WORKERS is the number of processes that every question has.
"""

# Bytewax is no dependency, so there are no types of it.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUntypedBaseClass=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import socket
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from benchmarks.payments_systems.generated import BATCH_ROWS, SPLITS, source_of
from benchmarks.payments_systems.question import CODEC, CODEC_LEVEL, WINDOW_US, Question
from benchmarks.topics.system import DONE
from laminar_core.connectors.datagen import DatagenSource

_KEYS = ["window", "merchant"]
_TOTALS = ["payments", "total_cents", "min_cents", "max_cents"]
_MERGES = [("payments", "sum"), ("total_cents", "sum"), ("min_cents", "min"), ("max_cents", "max")]
_COMBINES = [("amount_cents", how) for how in ("count", "sum", "min", "max")]
_MERGED_ROWS = 500_000
"""Combined rows that are kept before they are merged."""


def main(folder: str, workers: str) -> None:
    """Answer the question in each line of the input, in processes that stay."""
    context = get_context("spawn")
    ends: list[Connection] = []
    for _ in range(int(workers) - 1):
        ours, theirs = context.Pipe()
        context.Process(target=_follow, args=(theirs,), daemon=True).start()
        ends.append(ours)
    for number, line in enumerate(sys.stdin):
        question, store = Question.of(line), Path(folder) / f"bytewax-{number}"
        store.mkdir(parents=True)
        Path(question.output).mkdir(parents=True)
        init_db_dir(store, int(workers))
        addresses = list(_addresses(int(workers)))
        for worker, end in enumerate(ends, 1):
            end.send((question, str(store), addresses, worker))
        _run(question, str(store), addresses, 0)
        for end in ends:
            end.recv()
        print(DONE, flush=True)  # noqa: T201 - its output


def _follow(end: Connection) -> None:
    """Take part in every run, in a process of its own."""
    while True:
        try:
            asked = end.recv()
        except EOFError:
            return
        _run(*asked)
        end.send(DONE)


def _run(question: Question, store: str, addresses: list[str], worker: int) -> None:
    cluster_main(
        _flow(question, len(addresses)),
        addresses,
        worker,
        epoch_interval=timedelta(seconds=1),
        recovery_config=RecoveryConfig(store),
        worker_count_per_proc=1,
    )


def _addresses(count: int) -> Iterator[str]:
    """Yield addresses of this machine that are free, all of them at once."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    for each in sockets:
        yield f"127.0.0.1:{each.getsockname()[1]}"
    for each in sockets:
        each.close()


def _flow(question: Question, workers: int) -> Dataflow:
    source = source_of(Path(question.rows))
    assert source is not None, "files are not read"
    flow = Dataflow("payments")
    rows = op.input("rows", flow, _Generated(source))
    combined = op.flat_map("combine", rows, lambda batch: _divided(_combined(batch), workers))
    merged = op.stateful_batch("merge", combined, _Merge)
    op.output("totals", merged, _Files(question.output))
    return flow


class _Generated(FixedPartitionedSource):
    """Each split of the generator is a partition."""

    def __init__(self, source: DatagenSource) -> None:
        self._source = source

    def list_parts(self) -> list[str]:
        return [str(split) for split in range(SPLITS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> "_Split":
        del step_id
        return _Split(self._source, int(for_part), resume_state or 0)


class _Split(StatefulSourcePartition):
    """Reads every eighth row."""

    def __init__(self, source: DatagenSource, split: int, position: int) -> None:
        self._source = source
        self._next = position
        assert source.rows is not None
        self._rows = len(range(split, source.rows, SPLITS))
        self._split = split

    def next_batch(self) -> list[pa.RecordBatch]:
        if self._next == self._rows:
            raise StopIteration
        stop = min(self._next + BATCH_ROWS, self._rows)
        numbers = np.arange(self._next, stop, dtype=np.int64) * SPLITS + self._split
        self._next = stop
        return [self._source.batch(numbers)]

    def snapshot(self) -> int:
        return self._next


def _combined(batch: pa.RecordBatch) -> pa.Table:
    times = batch.column("paid_at").cast(pa.int64())
    windows = pc.call_function("divide", [times, WINDOW_US])
    table = pa.table(
        {"window": windows, "merchant": batch["merchant"], "amount_cents": batch["amount_cents"]}
    )
    grouped = table.group_by(_KEYS, use_threads=False).aggregate(_COMBINES)
    return grouped.rename_columns([*_KEYS, *_TOTALS])


def _divided(table: pa.Table, shards: int) -> Iterable[tuple[str, pa.Table]]:
    owners = table.column("merchant").to_numpy() % shards
    return [(str(n), table.filter(pa.array(owners == n))) for n in range(shards)]


class _Merge(StatefulBatchLogic):
    """Merges what belongs to one shard, and returns it at the end."""

    def __init__(self, state: pa.Table | None) -> None:
        self._parts = [] if state is None else [state]

    def on_batch(self, values: list[pa.Table]) -> tuple[list[pa.Table], bool]:
        self._parts += values
        if sum(part.num_rows for part in self._parts) > _MERGED_ROWS:
            self._parts = [self._merged()]
        return [], False

    def on_notify(self) -> tuple[list[pa.Table], bool]:
        return [], False

    def on_eof(self) -> tuple[list[pa.Table], bool]:
        return [self._merged()], True

    def notify_at(self) -> datetime | None:
        return None

    def snapshot(self) -> pa.Table:
        return self._merged()

    def _merged(self) -> pa.Table:
        table = pa.concat_tables(self._parts)
        grouped = table.group_by(_KEYS, use_threads=False).aggregate(_MERGES)
        return grouped.rename_columns([*_KEYS, *_TOTALS])


class _Files(DynamicSink):
    """A file per shard."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "_File":
        del step_id, worker_count
        return _File(Path(self._folder), worker_index)


class _File(StatelessSinkPartition):
    def __init__(self, folder: Path, worker: int) -> None:
        self._folder, self._worker = folder, worker

    def write_batch(self, items: list[tuple[str, pa.Table]]) -> None:
        for shard, table in items:
            columns: dict[str, Any] = {name: table.column(name) for name in _TOTALS}
            starts = pc.call_function("multiply", [table.column("window"), WINDOW_US])
            columns["merchant"] = table.column("merchant")
            columns["window_start"] = starts.cast(pa.timestamp("us", "UTC"))
            total, count = (columns[n].cast(pa.float64()) for n in ("total_cents", "payments"))
            columns["average_cents"] = pc.call_function("divide", [total, count])
            path = self._folder / f"part-{self._worker}-{shard}.parquet"
            pq.write_table(
                pa.table(columns), path, compression=CODEC, compression_level=CODEC_LEVEL
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
