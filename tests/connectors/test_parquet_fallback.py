"""A driver dies anywhere in a commit, and recovery goes on, falls back, or starts anew.

The oracles are two readers: ``read_committed``, and one of the plain directory, as Spark, DuckDB
and ``pyarrow.dataset`` are, which knows of no commits.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from laminar_core.connectors.parquet_commit import ParquetCommitter, read_committed
from laminar_core.connectors.parquet_sink import ParquetSink, _StagedFile
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import payments, rows_of
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

TABLES = payments(2, 3)
EXPECTED = sorted(row["id"] for row in rows_of(TABLES))
CALLS_MIN = 15
COMMITTER = ("commit", "withdraw_after", "discard_uncommitted")


def output_job(path: Path) -> Simulation:
    """A job with output in every checkpoint."""
    p = Pipeline("steady")
    read = p.source("in", MemorySource(TABLES, batch_rows=2, gap_every=1)).rebalance()
    read.sink("out", ParquetSink(path, target_file_rows=1))
    often = CoordinatorConfig(interval_ms=50)
    return Simulation(p.plan(), parallelism=1, checkpoint=often, objects=SimulatedDisk())


def plain(path: Path) -> list[int]:
    """The ids that a reader of the plain directory sees."""
    return sorted(ds.dataset(path, format="parquet").to_table(columns=["id"])["id"].to_pylist())


def committed(path: Path) -> list[int]:
    return sorted(read_committed(path)["id"].to_pylist())


@dataclass
class DeadlyCalls:
    """Counts the committer's calls to the operating system; the driver dies before one of them."""

    simulation: Simulation
    deadly: int
    calls: int = 0
    depth: int = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in COMMITTER:
            patch.setattr(ParquetCommitter, name, self._inside(getattr(ParquetCommitter, name)))
        calls = [(Path, name) for name in ("open", "rename", "hardlink_to", "unlink")]
        for owner, name in [*calls, (os, "fsync")]:
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _inside(self, method: Callable) -> Callable:
        def call(*args):
            self.depth += 1
            try:
                return method(*args)
            finally:
                self.depth -= 1

        return call

    def _counted(self, real: Callable) -> Callable:
        def call(*args, **kwargs):
            self.calls += self.depth > 0
            if self.depth and self.calls == self.deadly:
                self.simulation.kill_driver()
                raise ProcessKilledError("driver-1")
            return real(*args, **kwargs)

        return call


@pytest.fixture(autouse=True)
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of workers that were killed, which nobody but the test closes."""
    files, real = [], _StagedFile.__init__
    monkeypatch.setattr(
        _StagedFile, "__init__", lambda self, *args: files.append(self) or real(self, *args)
    )
    yield
    for file in files:
        file.abandon()


def go_on(simulation: Simulation) -> None:
    simulation.run_to_end()


def one_older(simulation: Simulation) -> None:
    """The newest checkpoint is damaged, so recovery falls back to exactly the one before it."""
    completed = simulation.store.manifests.ids()
    simulation.objects.put(simulation.store.paths.manifest(completed[-1]), b"rot")
    simulation.run(allow_fresh=len(completed) == 1)


def a_fresh_start(simulation: Simulation) -> None:
    for checkpoint_id in simulation.store.manifests.ids():
        simulation.objects.put(simulation.store.paths.manifest(checkpoint_id), b"rot")
    simulation.run(allow_fresh=True)


def finished(simulation: Simulation) -> None:
    simulation.run()


def withdrawn(simulation: Simulation) -> None:
    """All is done, and then somebody goes back to the first checkpoint."""
    if not simulation.store.manifests.ids():
        simulation.run()
    simulation.run(restore_id=simulation.store.manifests.ids()[0])


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize("recover", [go_on, one_older, a_fresh_start])
@pytest.mark.parametrize("interrupted", [finished, withdrawn])
def test_no_reader_sees_a_row_twice_or_misses_one(tmp_path, monkeypatch, interrupted, recover):
    """Method: die before the committer's first call to the operating system, its second, …"""
    deadly, died = 0, True
    while died:
        deadly += 1
        path = tmp_path / str(deadly)
        simulation = output_job(path)
        with monkeypatch.context() as patch:
            DeadlyCalls(simulation, deadly).install(patch)
            try:
                interrupted(simulation)
                died = False
            except ProcessKilledError:
                pass
        if died:
            recover(simulation)
        assert committed(path) == plain(path) == EXPECTED, f"died before call {deadly}"
    assert deadly > CALLS_MIN, "too few to be about anything"
