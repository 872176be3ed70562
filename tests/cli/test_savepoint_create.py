"""A savepoint is written from Parquet files on the command line, and a job may start from it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoints import read_savepoint
from laminar_core.store.state_reading import SavepointFiles, read_operator

PROGRAM = """
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline

def pipeline():
    p = Pipeline("visits")
    rows = p.source("in", DatagenSource({"shop": Sequence(3)}, rows=30))
    rows.key_by("shop").aggregate("totals", agg.count()).sink("out", CollectSink())
    return p
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "visits.py").write_text(PROGRAM)
    return tmp_path / "visits.py"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    shops = {"shop": pa.array([0, 1, 2], pa.int64()), "count(*)": [100, 200, 300]}
    pq.write_table(pa.table(shops), tmp_path / "totals.parquet")
    return tmp_path / "totals.parquet"


def created(cli, program: Path, rows: Path, *options: object):
    place = program.parent
    common = ("--store", place / "store", "--reason", "moved here")
    command = ("savepoint", "create", program, place / "s", *common)
    return cli(*command, "--state", f"totals={rows}", *options)


def test_a_savepoint_is_created_and_that_is_audited(cli, program, rows, tmp_path):
    answer = created(cli, program, rows)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"{tmp_path}/s is a savepoint for job visits, with 3 rows of state given\n"
    found = read_savepoint(open_object_store(str(tmp_path / "s")))
    state = read_operator(SavepointFiles(found), found.record.cut(), "totals")
    assert state is not None
    assert sorted(state.column("count(*)").to_pylist()) == [100, 200, 300]
    store = CheckpointStore(LocalObjectStore(tmp_path / "store"), "visits")
    log = AuditLog(store.objects, store.paths, lambda: 0)
    assert [(r.action, r.reason, r.outcome) for r in log.records()] == [
        ("create-savepoint", "moved here", "intended"),
        ("create-savepoint", "moved here", "done"),
    ]


def test_a_job_would_start_from_it(cli, program, rows, tmp_path):
    created(cli, program, rows)
    where = ("--store", tmp_path / "store", "--from-savepoint", tmp_path / "s")
    answer = cli("recover", program, "--dry-run", *where)
    assert "job visits would start from" in answer.out
    assert answer.code == 0


def test_the_place_is_not_overwritten(cli, program, rows):
    created(cli, program, rows)
    again = created(cli, program, rows)
    assert again.code == 2
    assert "is not empty" in again.err


@pytest.mark.parametrize("job", ["visits", "later"])
def test_the_folder_of_a_job_is_no_place(cli, program, rows, job, tmp_path):
    place = tmp_path / "store" / job / "checkpoints" / "s"
    words = ("--store", tmp_path / "store", "--reason", "moved", "--state", f"totals={rows}")
    answer = cli("savepoint", "create", program, place, *words)
    assert (answer.code, answer.out) == (2, "")
    assert f"{place} is in the folder of job {job}" in answer.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--state", "totals"), "is no NAME=FILE of a Parquet file"),
        (("--state", "totals=missing.parquet"), "is no NAME=FILE of a Parquet file"),
        (("--positions", "out=totals.parquet"), "is no NAME=FILE of a Parquet file"),
        (("--base", "nowhere"), "there is nothing at"),
    ],
)
def test_what_cannot_be_read_is_refused(cli, program, rows, options, problem):
    answer = created(cli, program, rows, *options)
    assert answer.code == 2
    assert problem in answer.err


def test_event_time_is_given_with_a_zone_and_is_audited(cli, program, rows, tmp_path):
    answer = created(cli, program, rows, "--event-time", "2026-01-01T00:00:00+00:00")
    assert answer.code == 0
    store = CheckpointStore(LocalObjectStore(tmp_path / "store"), "visits")
    (first, *_) = AuditLog(store.objects, store.paths, lambda: 0).records()
    assert first.after["event_time"] == "2026-01-01T00:00:00+00:00"
    answer = created(cli, program, rows, "--event-time", "yesterday")
    assert answer.code == 2
    assert "yesterday" in answer.err


def test_event_time_is_kept_to_the_microsecond(cli, program, rows, tmp_path):
    assert created(cli, program, rows, "--event-time", "1970-01-01T00:00:01.234567Z").code == 0
    cut = read_savepoint(LocalObjectStore(tmp_path / "s")).record.cut()
    assert {entry.watermark_us for entry in cut.alignment} == {1_234_567}
