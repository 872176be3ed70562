"""A writer stages bounded files that are whole, durable and never lost between checkpoints."""

import errno
import gc
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors import parquet_sink
from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, StorageUnavailable
from laminar_core.operators.base import Snapshot, SubtaskContext

SCHEMA = pa.schema([("n", pa.int64())])


def batch(start, stop):
    return pa.record_batch({"n": pa.array(range(start, stop), pa.int64())})


def open_writer(sink, *, subtask=0, generation=1, schema=SCHEMA):
    return sink.open(SubtaskContext("sink", subtask, 2, 128, generation), schema)


def staged(sink):
    return sorted(file.name for file in sink.directory.staging.iterdir())


@pytest.fixture
def sink(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    sink.check(SCHEMA)
    return sink


def test_no_rows_are_no_file(sink):
    writer = open_writer(sink)
    writer.write(batch(0, 0))
    assert writer.snapshot(1)() == Snapshot()
    assert staged(sink) == []


def test_a_committable_tells_what_is_staged(sink):
    writer = open_writer(sink, subtask=3, generation=12)
    writer.write(batch(0, 5))
    snapshot = writer.snapshot(7)()
    (file,) = sink.directory.staging.iterdir()
    assert snapshot == Snapshot(
        committables=(
            {
                "checkpoint_id": 7,
                "staged": "0000000012-00003-000000.parquet",
                "final": "part-0000000007-00003-000000-g12.parquet",
                "row_count": 5,
                "size_bytes": file.stat().st_size,
            },
        )
    )
    assert pq.read_table(file).to_pydict() == {"n": [0, 1, 2, 3, 4]}


def test_the_synchronous_phase_writes_nothing(sink):
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    pending = writer.snapshot(1)
    assert staged(sink) == []
    assert len(pending().committables) == 1


def test_rows_written_after_the_cut_are_in_the_next_file(sink):
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    pending = writer.snapshot(1)
    writer.write(batch(5, 9))
    assert [output["row_count"] for output in pending().committables] == [5]
    assert [output["row_count"] for output in writer.snapshot(2)().committables] == [4]


def test_full_row_groups_leave_memory_before_the_checkpoint(sink):
    """Goal: memory is bounded by a row group, not by the time between two checkpoints."""
    writer = open_writer(sink)
    gc.collect()
    before = pa.total_allocated_bytes()
    for at in range(40):
        writer.write(batch(at * 50_000, at * 50_000 + 50_000))
    assert pa.total_allocated_bytes() - before < 8 << 20
    (output,) = writer.snapshot(1)().committables
    assert output["row_count"] == 2_000_000
    file = sink.directory.staging / output["staged"]
    assert pq.read_metadata(file).num_row_groups == 14
    assert pq.read_table(file)["n"].to_pylist() == list(range(2_000_000))


def test_long_strings_fill_a_row_group_by_their_bytes(sink):
    schema = pa.schema([("s", pa.string())])
    writer = open_writer(sink, schema=schema)
    for _ in range(3):
        writer.write(pa.record_batch({"s": ["x" * (20 << 20)]}))
    (output,) = writer.snapshot(1)().committables
    assert pq.read_metadata(sink.directory.staging / output["staged"]).num_row_groups == 2


def test_only_values_that_repeat_have_a_dictionary(sink):
    """Numbers that hardly repeat would take longer with one, and more space than without."""
    rows, seeded = 131_072, random.Random(5)
    numbers = pa.array(seeded.getrandbits(62) for _ in range(rows))
    few = pa.array([f"country-{number % 200}" for number in range(rows)])
    table = pa.record_batch({"number": numbers, "country": few})
    writer = open_writer(sink, schema=table.schema)
    writer.write(table)
    (output,) = writer.snapshot(1)().committables
    group = pq.read_metadata(sink.directory.staging / output["staged"]).row_group(0)
    assert group.column(0).total_compressed_size < 1.06 * numbers.nbytes
    assert group.column(1).total_compressed_size < 0.1 * few.nbytes
    assert group.column(1).has_dictionary_page


def test_a_file_ends_at_the_target_size(tmp_path):
    sink = ParquetSink(tmp_path, target_file_rows=10)
    writer = open_writer(sink)
    for at in range(0, 25, 5):
        writer.write(batch(at, at + 5))
    outputs = writer.snapshot(1)().committables
    assert [output["row_count"] for output in outputs] == [10, 10, 5]
    sink.committer().commit(1, outputs)
    assert read_committed(tmp_path)["n"].to_pylist() == list(range(25))


@pytest.mark.parametrize("compression", ["zstd", "lz4", "snappy", "none"])
def test_every_compression_can_be_read_back(tmp_path, compression):
    sink = ParquetSink(tmp_path, compression=compression)
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    sink.committer().commit(1, writer.snapshot(1)().committables)
    assert read_committed(tmp_path)["n"].to_pylist() == list(range(5))


def test_dictionaries_are_written_as_plain_strings(sink):
    parts = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", None])]
    writer = open_writer(sink, schema=pa.schema([("key", parts[0].type)]))
    for part in parts:
        writer.write(pa.record_batch({"key": part}))
    sink.committer().commit(1, writer.snapshot(1)().committables)
    table = read_committed(sink.path)
    assert table.schema.field("key").type == pa.string()
    assert table["key"].to_pylist() == ["a", "b", "c", None]


def test_a_file_is_offered_again_until_a_snapshot_has_finished(sink):
    """Goal: rows of a snapshot that nobody finished, or that failed, are in the next one."""
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    first, second = writer.snapshot(1), writer.snapshot(2)
    assert first().committables == second().committables
    assert writer.snapshot(3)() == Snapshot()


def test_a_directory_that_cannot_be_synced_fails_only_this_snapshot(sink, monkeypatch):
    """Goal: the file itself is durable, so the next snapshot may offer it."""
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    pending = writer.snapshot(1)
    with monkeypatch.context() as patch:
        real, calls = os.fsync, iter(range(9))
        patch.setattr(os, "fsync", lambda fd: real(fd) if next(calls) == 0 else refuse())
        with pytest.raises(StorageUnavailable):
            pending()
    assert [output["row_count"] for output in writer.snapshot(2)().committables] == [5]


def test_snapshots_that_never_finished_are_made_up_for(sink):
    writer = open_writer(sink)
    for checkpoint_id in (1, 2, 3):
        writer.write(batch(checkpoint_id, checkpoint_id + 1))
        pending = writer.snapshot(checkpoint_id)
    assert [output["checkpoint_id"] for output in pending().committables] == [1, 2, 3]


def test_snapshots_may_finish_at_the_same_time_in_any_order(sink):
    writer, together = open_writer(sink), threading.Barrier(8)
    pending = []
    for checkpoint_id in range(1, 9):
        writer.write(batch(checkpoint_id, checkpoint_id + 1))
        pending.append(writer.snapshot(checkpoint_id))

    def finish(at):
        together.wait()
        return len(pending[at]().committables)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(finish, reversed(range(8)))) == list(reversed(range(1, 9)))
    assert len(staged(sink)) == 8


def test_names_of_generations_and_subtasks_never_meet(sink):
    for generation in (1, 2):
        for subtask in (0, 1):
            writer = open_writer(sink, subtask=subtask, generation=generation)
            for checkpoint_id in (1, 2):
                writer.write(batch(0, 1))
                writer.snapshot(checkpoint_id)()
    assert len(staged(sink)) == 8


def test_two_sinks_in_one_directory_are_noticed(sink):
    first, second = open_writer(sink), open_writer(ParquetSink(sink.path))
    first.write(batch(0, 5))
    second.write(batch(5, 9))
    first.snapshot(1)()
    with pytest.raises(ConfigurationError, match="two sinks write to one directory"):
        second.snapshot(1)()


def test_closing_deletes_only_what_is_in_no_snapshot(tmp_path):
    sink = ParquetSink(tmp_path, target_file_rows=10)
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    (output,) = writer.snapshot(1)().committables
    writer.write(batch(5, 15))
    writer.write(batch(15, 18))
    assert len(staged(sink)) == 2
    writer.close()
    assert staged(sink) == [output["staged"]]


def test_closing_in_the_middle_of_a_file_deletes_it(sink):
    writer = open_writer(sink)
    writer.write(batch(0, 200_000))
    assert len(staged(sink)) == 1
    writer.close()
    assert staged(sink) == []


@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_a_file_that_failed_is_never_offered_again_as_if_it_were_whole(
    tmp_path, monkeypatch, failing
):
    """Goal: no checkpoint completes without rows that the disk refused."""
    sink = ParquetSink(tmp_path / "out")
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    with monkeypatch.context() as patch:
        target = (os, "fsync") if failing == "fsync" else (pq.ParquetWriter, "write_table")
        patch.setattr(*target, refuse)
        with pytest.raises(StorageUnavailable, match="free some space") as caught:
            writer.snapshot(1)()
    assert caught.value.code is ErrorCode.STORE_FULL
    writer.write(batch(5, 9))
    with pytest.raises(StorageUnavailable):
        writer.snapshot(2)()
    with pytest.raises(StorageUnavailable):
        writer.snapshot(3)()


def refuse(*_args, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("rows", [5, 200_000])
def test_a_full_device_fails_the_checkpoint_and_names_the_cause(sink, monkeypatch, rows):
    """Goal: the real error of a real full device, on the data path or in the background."""
    writer = open_writer(sink)
    with Path("/dev/full").open("wb", buffering=0) as full_device:
        monkeypatch.setattr(Path, "open", lambda *_: full_device)
        with pytest.raises(StorageUnavailable, match="free some space") as caught:
            write_and_snapshot(writer, rows)
    assert caught.value.code is ErrorCode.STORE_FULL
    with pytest.raises(StorageUnavailable):
        writer.snapshot(2)()


def write_and_snapshot(writer, rows):
    writer.write(batch(0, rows))
    writer.snapshot(1)()


# --- check ---------------------------------------------------------------------------------------


def test_a_fresh_directory_is_created_and_accepted_again(tmp_path):
    sink = ParquetSink(tmp_path / "deep" / "out")
    sink.check(SCHEMA)
    assert sink.directory.commits.is_dir()
    writer = open_writer(sink)
    writer.write(batch(0, 5))
    sink.committer().commit(1, writer.snapshot(1)().committables)
    sink.check(SCHEMA)


def test_an_empty_directory_with_hidden_files_is_accepted(tmp_path):
    (tmp_path / ".gitkeep").touch()
    ParquetSink(tmp_path).check(SCHEMA)


def test_somebody_elses_directory_is_refused_and_left_alone(tmp_path):
    (tmp_path / "theirs.parquet").touch()
    with pytest.raises(ConfigurationError, match="did not write: give an empty directory"):
        ParquetSink(tmp_path).check(SCHEMA)
    assert [file.name for file in tmp_path.iterdir()] == ["theirs.parquet"]


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/laminar"])
def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot write to the directory") as caught:
        ParquetSink(tmp_path / path).check(SCHEMA)
    assert caught.value.code is ErrorCode.STORE_NOT_WRITABLE
    assert "\n" not in str(caught.value)


def test_a_type_that_parquet_lacks_is_named_before_anything_is_created(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("span", pa.month_day_nano_interval())])
    with pytest.raises(ConfigurationError, match="'span' of type month_day_nano") as caught:
        ParquetSink(tmp_path / "out").check(schema)
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"path": "gs://bucket/x"},
        {"path": "s3://bucket/x?colour=red"},
        {"compression": "gzip9"},
        {"target_file_rows": 0},
    ],
    ids=str,
)
def test_impossible_options_are_refused_at_once(options):
    with pytest.raises(ConfigurationError) as caught:
        ParquetSink(**{"path": "out"} | options)
    assert caught.value.code is ErrorCode.INVALID_OPTION


def test_how_rows_are_packed_does_not_decide_whether_state_fits(tmp_path):
    assert ParquetSink(tmp_path).describe() == ParquetSink(tmp_path, "lz4", 10).describe()
    assert ParquetSink(tmp_path).describe() != ParquetSink(tmp_path / "other").describe()


def test_a_few_long_texts_of_a_dictionary_fill_row_groups(sink, monkeypatch):
    """Goal: a batch that would decode to gigabytes is written part by part."""
    monkeypatch.setattr(parquet_sink, "_ROW_GROUP_BYTES", 50_000)
    rows = pa.record_batch({"s": pa.DictionaryArray.from_arrays([0] * 1_000, ["x" * 1_000])})
    writer = open_writer(sink, schema=rows.schema)
    writer.write(rows)
    writer.snapshot(1)()
    (file,) = sink.directory.staging.iterdir()
    footer = pq.read_metadata(file)
    assert footer.num_row_groups == 20
    assert pq.read_table(file)["s"].to_pylist() == ["x" * 1_000] * 1_000


def test_a_large_dictionary_that_slices_share_fills_no_row_group(sink, monkeypatch):
    monkeypatch.setattr(parquet_sink, "_ROW_GROUP_BYTES", 50_000)
    texts = pa.array([f"{n:0100d}" for n in range(1_000)])
    rows = pa.record_batch({"s": texts.dictionary_encode()})
    writer = open_writer(sink, schema=rows.schema)
    for start in range(100):
        writer.write(rows.slice(start, 1))
    writer.snapshot(1)()
    (file,) = sink.directory.staging.iterdir()
    assert pq.read_metadata(file).num_row_groups == 1


@pytest.mark.parametrize(
    "data_type",
    [pa.decimal128(10, -2), pa.binary(0), pa.dictionary(pa.int32(), pa.list_(pa.int64()))],
    ids=str,
)
def test_a_type_that_cannot_be_decoded_or_written_is_refused(tmp_path, data_type):
    with pytest.raises(ConfigurationError, match="Parquet cannot hold column 'x'") as caught:
        ParquetSink(tmp_path / "out").check(pa.schema([("x", data_type)]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE


def test_a_value_that_parquet_cannot_hold_is_no_failure_of_the_storage(sink):
    """Goal: the error names the rows as its cause, and every later snapshot fails as well."""
    texts = pa.DictionaryArray.from_arrays(pa.array([7]), pa.array(["a"]), safe=False)
    rows = pa.record_batch({"s": texts})
    writer = open_writer(sink, schema=rows.schema)
    writer.write(rows)
    for checkpoint_id in (1, 2):
        with pytest.raises(DataError, match="rows cannot be written to Parquet: ") as caught:
            writer.snapshot(checkpoint_id)()
        assert caught.value.code is ErrorCode.NOT_ENCODABLE


def test_a_null_that_may_not_be_is_an_error_of_the_rows_and_loses_none_of_them(sink):
    """Goal: whatever is raised while rows are decoded, the file is not offered without them."""
    schema = pa.schema([pa.field("s", pa.dictionary(pa.int32(), pa.string()), nullable=False)])
    writer = open_writer(sink, schema=schema)
    for values in (["a", "b"], ["c", None]):
        column = pa.array(values).dictionary_encode()
        writer.write(pa.record_batch([column], schema=schema))
    for checkpoint_id in (1, 2):
        with pytest.raises(DataError, match="rows cannot be written to Parquet: "):
            writer.snapshot(checkpoint_id)()


def test_a_file_is_not_offered_after_an_error_that_nothing_foresaw(sink, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    writer = open_writer(sink)
    writer.write(batch(0, 5))
    pending = writer.snapshot(1)
    with monkeypatch.context() as patched:
        patched.setattr(parquet_sink, "plain_tables", fail)
        with pytest.raises(ZeroDivisionError):
            pending()
    with pytest.raises(ZeroDivisionError):
        writer.snapshot(2)()
