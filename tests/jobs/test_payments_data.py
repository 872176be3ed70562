"""The demo's input: reproducible, skewed, out of order within bounds, balanced over readers."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.errors import ConfigurationError
from laminar_core.jobs import data_sets
from laminar_core.jobs.payments_data import main, write_payments

SMALL = {"rows": 1_000, "files": 3, "merchants": 20}


def content(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.fixture(scope="module")
def payments(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "payments"
    assert write_payments(path, rows=1_500_000, events_per_second=200)
    return path


def test_the_files_have_the_columns_that_the_job_reads(payments):
    stored = pq.read_schema(payments / "payments-000.parquet")
    assert stored.names == ["merchant", "amount_cents", "paid_at"]
    assert stored.types == [pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")]


def test_all_rows_are_there_in_compressed_dictionary_encoded_row_groups(payments):
    splits = first_splits(ParquetSource(payments))
    assert sum(splits["rows_total"].to_pylist()) == 1_500_000
    assert len(set(splits["path"].to_pylist())) == 8
    chunk = pq.read_metadata(payments / "payments-000.parquet").row_group(0).column(0)
    assert (chunk.compression, chunk.has_dictionary_page) == ("LZ4", True)


def test_merchants_are_many_and_skewed(payments):
    merchants = pq.read_table(payments, columns=["merchant"])["merchant"]
    counts = merchants.value_counts().field("counts").to_numpy()
    assert len(counts) >= 10_000
    assert counts.max() > 100 * np.median(counts)


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_whoever_reads_every_nth_row_group_meets_no_row_later_than_the_disorder(payments, readers):
    source = ParquetSource(payments, columns=["paid_at"])
    splits = first_splits(source)
    for at in range(readers):
        reader = source.open(splits.take(pa.array(range(at, splits.num_rows, readers))))
        times = [
            batch.rows["paid_at"].cast(pa.int64()).to_numpy()
            for batch in iter(lambda reader=reader: reader.poll(1_000_000), None)
        ]
        read = np.concatenate(times)
        behind = np.maximum.accumulate(read) - read
        assert 19_000_000 < behind.max() <= 20_000_000


def test_event_time_spans_many_windows_evenly(payments):
    times = pq.read_table(payments, columns=["paid_at"])["paid_at"].cast(pa.int64()).to_numpy()
    windows, counts = np.unique(times // 300_000_000, return_counts=True)
    assert len(windows) >= 25
    assert counts[1:-1].min() > 0.99 * 200 * 300


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        assert write_payments(tmp_path / name, **SMALL)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert write_payments(tmp_path / "c", **SMALL | {"seed": 2})
    assert content(tmp_path / "c") != content(tmp_path / "a")


def test_the_number_of_files_does_not_change_the_rows(tmp_path):
    for files in (1, 7):
        write_payments(tmp_path / str(files), **SMALL | {"files": files})
    assert pq.read_table(tmp_path / "1") == pq.read_table(tmp_path / "7")


def test_more_files_than_rows_are_no_trouble(tmp_path):
    write_payments(tmp_path / "x", rows=2, files=5)
    assert first_splits(ParquetSource(tmp_path / "x"))["rows_total"].to_pylist() == [1, 1]


def test_row_groups_are_cut_at_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr(data_sets, "ROW_GROUP_ROWS", 150)
    monkeypatch.setattr(data_sets, "CHUNK_ROWS", 40)
    write_payments(tmp_path / "x", **SMALL | {"files": 2})
    counts = first_splits(ParquetSource(tmp_path / "x"))["rows_total"].to_pylist()
    assert counts == [150, 150, 150, 50] * 2


def test_a_data_set_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "payments"
    assert write_payments(path, **SMALL)
    before = {file: file.stat().st_mtime_ns for file in path.iterdir()}
    assert not write_payments(path, **SMALL)
    assert {file: file.stat().st_mtime_ns for file in path.iterdir()} == before


@pytest.mark.parametrize("damage", ["gone", "truncated", "description gone", "extra"])
def test_a_data_set_that_is_not_whole_is_written_again(tmp_path, damage):
    path = tmp_path / "payments"
    write_payments(path, **SMALL)
    whole = content(path)
    file = path / "payments-001.parquet"
    if damage == "gone":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "extra":
        (path / "more.parquet").write_bytes(file.read_bytes())
    else:
        (path / "_dataset.json").write_text("{")
    assert write_payments(path, **SMALL)
    assert content(path) == whole


def test_other_arguments_replace_the_data_set(tmp_path):
    path = tmp_path / "payments"
    write_payments(path, **SMALL)
    assert write_payments(path, **SMALL | {"rows": 10})
    assert pq.read_table(path).num_rows == 10
    assert json.loads((path / "_dataset.json").read_text())["parameters"]["rows"] == 10


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "payments"
    write_payments(path, **SMALL)
    before = content(path)

    def fail(_rows):
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_payments(path, **SMALL | {"seed": 2}, progress=fail)
    assert content(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["payments"]


def test_somebody_elses_directory_is_never_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="not a payments data set"):
        write_payments(tmp_path, **SMALL)
    with pytest.raises(ConfigurationError):
        write_payments(tmp_path / "thesis.txt", **SMALL)
    assert content(tmp_path) == {"thesis.txt": b"years of work"}


def test_progress_adds_up_to_the_rows(tmp_path):
    seen = []
    write_payments(tmp_path / "x", **SMALL, progress=seen.append)
    assert (sum(seen), len(seen)) == (1_000, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"rows": 0},
        {"files": 0},
        {"merchants": 0},
        {"events_per_second": 0},
        {"events_per_second": 10**7},
        {"max_disorder_s": -1},
        {"start": "2026-01-01"},
        {"start": "soon"},
    ],
    ids=str,
)
def test_impossible_arguments_are_refused_before_anything_is_written(tmp_path, options):
    with pytest.raises(ConfigurationError):
        write_payments(tmp_path / "x", **SMALL | options)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_once_and_says_what_it_did(tmp_path):
    arguments = [str(tmp_path / "x"), "--rows", "500", "--files", "2"]
    said = [CliRunner().invoke(main, arguments) for _ in range(2)]
    assert [result.exit_code for result in said] == [0, 0]
    assert "500 payments written to" in said[0].output
    assert "500 payments were already in" in said[1].output


def test_the_command_refuses_with_one_line(tmp_path):
    (tmp_path / "thesis.txt").touch()
    result = CliRunner().invoke(main, [str(tmp_path), "--rows", "5"])
    assert result.exit_code == 2
    assert [line for line in result.stderr.splitlines() if "error: " in line] == [
        f"error: {tmp_path} exists and is not a payments data set: give another path"
    ]
    assert list(itertools.chain(tmp_path.iterdir())) == [tmp_path / "thesis.txt"]
