"""Objects of an S3 server are read exactly once, whichever step of listing or reading is the last.

A process is killed at a step: the request has been answered, or was never sent. What lives on is
the bucket and the last checkpoint.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.files import file_source
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.parquet_rows import ParquetFormat
from laminar_core.connectors.files.places import FileStat, OpenFile, Place, place_at
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.objectstore.s3_options import S3Options
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import with_ledgers
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.objectstore.s3_servers import S3Server, client

COLUMNS = pa.schema([("n", pa.int64())])
OBJECTS = 6
LAST_CHECKPOINT = 12
STEPS = ("list", "listed", "stat", "open", "read", "has-read", "at-end")
"""Requests of a source to a bucket. The driver sends the first three, a worker the others."""
OF_DRIVER = {"list", "listed", "stat"}


class Strike:
    """Ends the process that reaches a step for the nth time."""

    def __init__(self, step: str, number: int) -> None:
        self.fired = False
        self.simulation: Simulation | None = None
        self._at = step, number
        self._reached = Counter[str]()

    def reach(self, step: str) -> None:
        self._reached[step] += 1
        if self.simulation is None or self.fired or (step, self._reached[step]) != self._at:
            return
        self.fired = True
        if step in OF_DRIVER:
            self.simulation.kill_driver()
        else:
            self.simulation.kill_worker(0)
        raise ProcessKilledError(step)


class WatchedPlace(Place):
    """A place whose every step is counted."""

    def __init__(self, place: Place, reach: Callable[[str], None]) -> None:
        self._place = place
        self._reach = reach
        self.whole_at_once = place.whole_at_once

    def files(self, after: str | None = None) -> Iterator[FileStat]:
        self._reach("list")
        found = list(self._place.files(after))
        self._reach("listed")
        return iter(found)

    def stat(self, name: str) -> FileStat | None:
        self._reach("stat")
        return self._place.stat(name)

    def open(self, found: FileStat) -> OpenFile:
        self._reach("open")
        return WatchedFile(self._place.open(found), self._reach)


class WatchedFile(OpenFile):
    """An open object whose every read is counted."""

    def __init__(self, file: OpenFile, reach: Callable[[str], None]) -> None:
        self._file = file
        self._reach = reach

    def read(self, size: int, /) -> bytes:
        self._reach("read")
        data = self._file.read(size)
        self._reach("has-read")
        return data

    def seek(self, position: int, /) -> object:
        return self._file.seek(position)

    def check_unchanged(self) -> None:
        self._reach("at-end")
        self._file.check_unchanged()

    def close(self) -> None:
        self._file.close()


@pytest.fixture(autouse=True)
def clients_that_killed_workers_left_open() -> Iterator[None]:
    """Who is killed closes nothing, and all of them are in this process."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def data_of(at: int, *, as_parquet: bool) -> bytes:
    numbers = range(1_000 * at, 1_000 * at + 10 + at)
    if not as_parquet:
        return b"".join(b'{"n":%d}\n' % n for n in numbers)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), sink, row_group_size=4)
    return sink.getvalue().to_pybytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("step", STEPS)
def test_each_row_comes_once_whichever_step_is_the_last_of_a_process(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    uri, strike, as_parquet = s3_server.uri(), Strike(step, number), number == 1
    opened = cache(place_at)  # A client takes long to make, and lives on.
    monkeypatch.setattr(
        file_source, "place_at", lambda path: WatchedPlace(opened(path), strike.reach)
    )
    options, bucket = S3Options.parse(uri), client(s3_server.endpoint)

    def put(at: int) -> None:
        body = data_of(at, as_parquet=as_parquet)
        name = str(Path(options.prefix) / f"day={at % 2}" / f"{at}.x")
        bucket.put_object(Bucket=options.bucket, Key=name, Body=body)

    source = FileSource(
        uri,
        ParquetFormat() if as_parquet else JsonFormat(),
        COLUMNS,
        pa.schema([("day", pa.int32())]),
        batch_rows=3,
        mode="continuous",
        interval="20 ms",
        ordered=False,
    )
    rows = [
        {"n": n, "day": at % 2}
        for at in range(OBJECTS)
        for n in range(1_000 * at, 1_000 * at + 10 + at)
    ]
    p = Pipeline("bucket")
    read = p.source("in", source, rows_per_second=500)
    job = with_ledgers(p, {"out": (read.rebalance(), rows)})
    simulation = Simulation(job.plan, parallelism=1, checkpoint=CoordinatorConfig(10))
    strike.simulation = simulation
    for at in range(3):
        put(at)
    for at in range(3, OBJECTS):
        simulation.when(CheckpointCompleted, partial(put, at), at - 1)
    if step == "stat":  # Positions are compared with the bucket when a job starts again.
        simulation.when(CheckpointCompleted, simulation.kill_driver, 1)
    simulation.when(CheckpointCompleted, simulation.stop, LAST_CHECKPOINT)
    assert simulation.run_to_end().outcome == "stopped"
    assert strike.fired
    job.check()
