"""Jobs that look rows up in files: each worker reads the same ones, and other ones are accepted."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors import LookupTable
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.restart import FixedDelay
from laminar_core.errors import ConfigurationError, DataError, IncompatibleStateError
from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.lookups.table import LookupRows
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Generation
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.jobs import normal, payments, rows_of
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.lookup_jobs import KEYS
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

ACCEPT = "lookup-change:cities"


class Cities:
    """Payments that get the city of their key from two files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, Ledger()
        self.write("a", KEYS[:4])
        self.write("b", KEYS[4:])
        checkpoint = CoordinatorConfig(interval_ms=40)
        self.simulation = Simulation(self.plan(), parallelism=2, checkpoint=checkpoint, seed=3)

    def write(self, name: str, keys: list[str], where: str = "old") -> None:
        cities = [f"{where} {key}" for key in keys]
        pq.write_table(pa.table({"key": keys, "city": cities}), self.folder / f"{name}.parquet")

    def plan(self) -> Plan:
        p = Pipeline("cities")
        rows = p.source("in", MemorySource(payments()), rows_per_second=80)
        table = LookupTable.parquet(self.folder)
        rows.lookup(table, "cities", on="key").sink("out", LedgerSink(self.ledger, "out"))
        return p.plan()

    def begin(self) -> None:
        """Run until the driver is killed, after its third checkpoint."""
        done = sum(isinstance(e, CheckpointCompleted) for e in self.simulation.events)
        self.simulation.when(CheckpointCompleted, self.simulation.kill_driver, done + 3)
        with pytest.raises(ProcessKilledError):
            self.simulation.run()

    def go_on(self, *accepted: str, workers: int = 3) -> None:
        self.simulation.plan = self.plan()
        self.simulation.options = replace(self.simulation.options, parallelism=workers)
        accept = tuple(map(parse_acceptance, accepted))
        assert self.simulation.run(accepted=accept).outcome == "finished"

    def refused(self, *accepted: str) -> str:
        with pytest.raises((IncompatibleStateError, ConfigurationError)) as caught:
            self.go_on(*accepted)
        return str(caught.value)

    def cities(self) -> list[str]:
        """Return the city of each payment, which is there once."""
        rows = self.ledger.rows()
        given = [{k: v for k, v in row.items() if k != "city"} for row in rows]
        assert normal(given) == normal(rows_of(payments()))
        return [str(row["city"]) for row in rows]

    def audited(self) -> list[str]:
        store = self.simulation.store
        records = AuditLog(store.objects, store.paths, lambda: 0).records()
        return [str(line) for one in records for line in (one.after or {}).get("accepted", ())]


def test_the_same_files_go_on_with_any_number_of_workers(tmp_path: Path) -> None:
    job = Cities(tmp_path)
    job.begin()
    assert "nothing needs --accept lookup-change:cities" in job.refused(ACCEPT)
    job.go_on()
    keys = sorted(f"old {row['key']}" for row in rows_of(payments()))
    assert sorted(job.cities()) == keys


def test_other_files_are_refused_by_name_and_accepted_for_one_start(tmp_path: Path) -> None:
    job = Cities(tmp_path)
    job.begin()
    before = len(job.ledger.rows())
    job.write("b", KEYS[4:], "newer")
    assert "another table of lookup cities: b.parquet has " in job.refused()
    assert "nothing needs --accept state-drop:cities" in job.refused("state-drop:cities", ACCEPT)
    job.simulation.plan = job.plan()
    simulation = job.simulation
    simulation.when(CheckpointCompleted, simulation.kill_driver, 4)
    with pytest.raises(ProcessKilledError):
        simulation.run(accepted=(parse_acceptance(ACCEPT),))
    (line,) = job.audited()
    assert line.startswith("lookup-change:cities: b.parquet has ")
    job.go_on()  # The new checkpoint has the new table, so nothing needs to be accepted.
    cities = job.cities()
    assert all(city.startswith("old") for city in cities[:before])
    assert any(city.startswith("newer") for city in cities)


def test_files_that_come_go_and_are_written_again_are_named(tmp_path: Path) -> None:
    job = Cities(tmp_path)
    job.begin()
    job.write("c", ["k9"])
    assert "c.parquet is new; bring the files back" in job.refused()
    (tmp_path / "b.parquet").unlink()
    assert "b.parquet is gone, and 1 more files differ" in job.refused()
    (tmp_path / "c.parquet").unlink()
    job.write("b", KEYS[4:])
    assert "b.parquet was written again, with the same length" in job.refused()
    job.go_on(ACCEPT)
    assert all(city.startswith("old") for city in job.cities())


def test_a_worker_that_comes_later_reads_no_other_table(tmp_path: Path) -> None:
    """Goal: a file changes while the job runs; a worker dies, and all of them open again."""
    job = Cities(tmp_path)
    simulation = job.simulation

    def change_and_kill() -> None:
        job.write("b", KEYS[4:], "newer")
        simulation.kill_worker(1)

    simulation.when(CheckpointCompleted, change_and_kill, 3)
    with pytest.raises(DataError) as caught:
        simulation.run(restart=FixedDelay(attempts=5))
    said = str(caught.value)
    assert "the table of lookup cities is not read: b.parquet was changed since it was foun" in said
    assert "every worker reads the files as they were when the pipeline was built" in said
    assert "b.parquet has " in job.refused()
    job.go_on(ACCEPT)
    job.cities()


def test_a_file_that_changes_between_the_openings_of_two_subtasks_is_noticed(
    tmp_path: Path,
) -> None:
    plan = Cities(tmp_path).plan()
    (lookup,) = [o for v in plan.vertices for o in v.operators if isinstance(o, LookupRows)]
    schema = payments()[0].schema

    def opened(subtask: int) -> None:
        lookup.open(SubtaskContext("cities", subtask, 2, 8, Generation(1)), schema)

    opened(0)
    Cities(tmp_path)  # Writes the same files again.
    with pytest.raises(DataError, match=r"a\.parquet was changed since it was found"):
        opened(1)
