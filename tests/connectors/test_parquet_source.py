"""Rows come out once, in order, from wherever reading resumed; a changed file is noticed."""

import itertools
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.parquet_source import SPLITS_SCHEMA, ParquetSource
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.state.splits import current
from tests.connectors.gap_checks import refuse_gaps

ROWS = 100
ALL = 1_000_000


def table(start=0, stop=ROWS):
    numbers = range(start, stop)
    names = [None if n % 7 == 0 else f"m-{n % 5}" for n in numbers]
    times = pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", tz="UTC"))
    return pa.table({"n": pa.array(numbers, pa.int64()), "name": names, "at": times})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four files, row groups of 10 rows: 100 rows in order."""
    path = tmp_path_factory.mktemp("payments")
    for at in range(4):
        rows = table(at * 25, at * 25 + 25)
        pq.write_table(
            rows, path / f"part-{at}.parquet", row_group_size=10, write_page_checksum=True
        )
    return path


def read(source, splits, polls=None, rows_max=ALL):
    reader = source.open(splits)
    batches = [b.rows for b in itertools.islice(iter(lambda: reader.poll(rows_max), None), polls)]
    position = reader.position()
    reader.close()
    return batches, position


def numbers(batches):
    return [n for batch in batches for n in batch["n"].to_pylist()]


def open_files(folder: Path) -> list[str]:
    handles = [Path(handle.path) for handle in psutil.Process().open_files()]
    return [handle.name for handle in handles if handle.parent == folder]


def test_splits_are_the_row_groups_in_order(folder):
    splits = first_splits(ParquetSource(folder))
    assert splits.schema == SPLITS_SCHEMA
    assert splits["split_id"].to_pylist() == list(range(12))
    assert splits["row_group"].to_pylist() == [0, 1, 2] * 4
    assert splits["rows_total"].to_pylist() == [10, 10, 5] * 4
    assert splits["offset"].to_pylist() == ["0"] * 12
    assert splits["path"].to_pylist()[3] == str(folder / "part-1.parquet")
    assert splits["split"].to_pylist()[:4] == [
        "part-0.parquet/0", "part-0.parquet/1", "part-0.parquet/2", "part-1.parquet/0",
    ]  # fmt: skip
    assert set(splits["file_row_groups"].to_pylist()) == {3}


def test_all_rows_come_out_once_with_the_declared_schema(folder):
    source = ParquetSource(folder)
    batches, _ = read(source, first_splits(source))
    assert {batch.schema for batch in batches} == {source.schema()}
    assert pa.Table.from_batches(batches).cast(table().schema) == table()


def test_a_batch_is_never_of_two_row_groups(folder):
    batches, _ = read(ParquetSource(folder, batch_rows=7), first_splits(ParquetSource(folder)))
    assert [batch.num_rows for batch in batches] == [7, 3, 7, 3, 5] * 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 2, 5, ALL]))),
    st.integers(1, 3),
)
@example([(3, 1, ALL), (4, 9, ALL)], 1)  # Skips three rows of the first batch, none of the second.
def test_reading_resumes_anywhere(folder, interruptions, readers):
    """Goal: positions lose and repeat nothing, whatever is decoded and asked for at once.

    Method: read with one batch size and one ``rows_max`` for some polls, stop, go on at the
    position with others; the splits are dealt to several readers.
    """
    splits = first_splits(ParquetSource(folder))
    found = []
    for dealt in (splits.take(pa.array(range(at, 12, readers))) for at in range(readers)):
        position, parts = dealt, []
        for batch_rows, polls, rows_max in interruptions:
            source = ParquetSource(folder, batch_rows=batch_rows)
            batches, position = read(source, position, polls, rows_max)
            assert all(batch.num_rows <= rows_max for batch in batches)
            parts += numbers(batches)
        parts += numbers(read(ParquetSource(folder), position)[0])
        assert parts == sorted(parts)
        found += parts
    assert sorted(found) == list(range(ROWS))


def test_finished_comes_with_the_last_row(folder):
    reader = ParquetSource(folder).open(first_splits(ParquetSource(folder)).slice(0, 1))
    assert not reader.finished
    assert reader.poll(ALL).rows.num_rows == 10
    assert reader.finished
    assert reader.poll(ALL) is None
    assert reader.position()["offset"].to_pylist() == ["10"]
    assert reader.position()["done"].to_pylist() == [True]


def test_no_splits_are_finished_at_once(folder):
    reader = ParquetSource(folder).open(SPLITS_SCHEMA.empty_table())
    assert reader.finished
    assert reader.poll(ALL) is None
    assert reader.position() == SPLITS_SCHEMA.empty_table()


def test_a_position_that_an_older_laminar_wrote_goes_on_where_it_was(folder):
    source = ParquetSource(folder)
    fresh = first_splits(source)
    pins = ["split_id", "path", "file_size_bytes", "file_row_groups", "row_group"]
    rows = {"row_count": fresh["rows_total"], "next_row": pa.array([10, 3] + [0] * 10)}
    old = pa.table({name: fresh[name] for name in pins} | rows)
    stored = current(old)
    assert stored.schema == SPLITS_SCHEMA
    refuse_gaps(source, stored)
    assert numbers(read(source, stored)[0]) == list(range(13, ROWS))


def test_a_position_is_not_changed_by_later_reads(folder):
    reader = ParquetSource(folder, batch_rows=4).open(first_splits(ParquetSource(folder)))
    reader.poll(ALL)
    position = reader.position()
    reader.poll(ALL)
    reader.close()
    assert position["offset"].to_pylist()[0] == "4"


def test_only_the_chosen_columns_are_read_in_that_order(folder):
    source = ParquetSource(folder, columns=["at", "n"])
    batch = source.open(first_splits(source).slice(0, 1)).poll(ALL).rows
    assert batch.schema.names == source.schema().names == ["at", "n"]
    assert batch["n"].to_pylist() == list(range(10))


def test_at_most_one_file_is_open_and_none_after_the_end(folder):
    reader = ParquetSource(folder).open(first_splits(ParquetSource(folder)))
    seen = []
    while not reader.finished:
        assert len(open_files(folder)) <= 1
        reader.poll(ALL)
        seen += open_files(folder)
    assert set(seen) == {f"part-{at}.parquet" for at in range(4)}
    assert open_files(folder) == []


def test_closing_in_the_middle_closes_the_file(folder):
    reader = ParquetSource(folder, batch_rows=3).open(first_splits(ParquetSource(folder)))
    reader.poll(ALL)
    assert len(open_files(folder)) == 1
    reader.close()
    assert open_files(folder) == []


def test_a_column_with_too_many_values_for_a_dictionary_is_still_right(tmp_path):
    """Goal: where Parquet fell back to plain pages, batches carry only the values they use."""
    names = [f"payment-{n * 7919 % 30_000:012d}" for n in range(30_000)]
    rows = pa.table({"name": names})
    pq.write_table(
        rows, tmp_path / "a.parquet", dictionary_pagesize_limit=5_000, data_page_size=4_000
    )
    source = ParquetSource(tmp_path, batch_rows=1_000)
    batches, _ = read(source, first_splits(source))
    assert pa.Table.from_batches(batches, source.schema()).cast(rows.schema) == rows
    assert max(len(batch["name"].dictionary) for batch in batches) == 1_000


def test_a_column_that_is_partly_a_dictionary_is_still_right(tmp_path):
    names = ["often"] * 60_000 + [f"payment-{n:06d}" for n in range(2_000)]
    rows = pa.table({"name": names})
    pq.write_table(
        rows, tmp_path / "a.parquet", dictionary_pagesize_limit=5_000, data_page_size=4_000
    )
    source = ParquetSource(tmp_path, batch_rows=1_000)
    batches, _ = read(source, first_splits(source))
    assert pa.Table.from_batches(batches, source.schema()).cast(rows.schema) == rows


def test_large_strings_become_the_declared_dictionary(tmp_path):
    rows = pa.table({"name": pa.array(["a", None, "b"], pa.large_string())})
    pq.write_table(rows, tmp_path / "a.parquet")
    source = ParquetSource(tmp_path)
    batch = source.open(first_splits(source)).poll(ALL).rows
    assert batch.schema == source.schema()
    assert batch["name"].to_pylist() == ["a", None, "b"]


def test_files_without_rows_are_an_input_without_rows(tmp_path):
    pq.write_table(table(0, 0), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path)
    assert first_splits(source).num_rows == 0
    assert source.schema().names == ["n", "name", "at"]


def test_a_file_with_another_schema_is_refused_at_discovery(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    pq.write_table(table().rename_columns(["n", "label", "at"]), tmp_path / "b.parquet")
    with pytest.raises(
        ConfigurationError, match=r"b\.parquet has fewer columns \(no name\)"
    ) as caught:
        first_splits(ParquetSource(tmp_path))
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert first_splits(ParquetSource(tmp_path, columns=["at", "n"])).num_rows == 2


def test_a_damaged_page_stops_reading_and_names_file_and_row_group(folder, tmp_path):
    file = tmp_path / "a.parquet"
    content = bytearray((folder / "part-0.parquet").read_bytes())
    chunk = pq.read_metadata(folder / "part-0.parquet").row_group(1).column(0)
    content[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(content)
    reader = ParquetSource(tmp_path).open(first_splits(ParquetSource(tmp_path)))
    assert reader.poll(ALL).rows["n"].to_pylist() == list(range(10))
    with pytest.raises(DataError, match=r"row group 1 of .*a\.parquet") as caught:
        reader.poll(ALL)
    assert caught.value.code is ErrorCode.UNREADABLE_FILE
    assert reader.position()["offset"].to_pylist() == ["10", "0", "0"]


def test_pages_that_are_not_verified_are_read_as_they_are(tmp_path):
    """The damaged byte is in a value: nothing else than the checksum would tell."""
    file = tmp_path / "a.parquet"
    rows = pa.table({"n": pa.array([5, 6, 7], pa.int64())})
    pq.write_table(rows, file, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(file.read_bytes())
    content[content.index((6).to_bytes(8, "little"))] = 9
    file.write_bytes(content)
    verified = ParquetSource(tmp_path)
    with pytest.raises(DataError):
        verified.open(first_splits(verified)).poll(ALL)
    trusting = ParquetSource(tmp_path, verify_pages=False)
    assert trusting.open(first_splits(trusting)).poll(ALL).rows["n"].to_pylist() == [5, 9, 7]


def test_pages_that_are_not_verified_are_recorded_and_change_no_position(tmp_path):
    verified, trusting = ParquetSource(tmp_path), ParquetSource(tmp_path, verify_pages=False)
    assert verified.properties == {}
    assert trusting.properties == {"pages_verified": False}
    assert verified.describe() == trusting.describe()


def rewrite(file: Path, change: str) -> None:
    """Make ``file`` another one than was pinned."""
    if change == "gone":
        file.unlink()
    elif change == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif change == "no parquet, same size":
        file.write_bytes(b"x" * file.stat().st_size)
    elif change == "longer":
        pq.write_table(table(0, 200), file, row_group_size=10)


CHANGES = ["gone", "truncated", "no parquet, same size", "longer"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_noticed_before_a_restore_and_while_reading(tmp_path, change):
    pq.write_table(table(0, 10), tmp_path / "a.parquet")
    pq.write_table(table(10, 20), tmp_path / "b.parquet")
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    refuse_gaps(source, splits)
    rewrite(tmp_path / "b.parquet", change)
    with pytest.raises(IncompatibleStateError, match=r"b\.parquet.*bring the file back") as caught:
        refuse_gaps(source, splits)
    assert caught.value.code is ErrorCode.SOURCE_CHANGED
    reader = source.open(splits)
    reader.poll(ALL)
    with pytest.raises(DataError, match=r"b\.parquet"):
        reader.poll(ALL)


def test_all_changed_files_are_counted(tmp_path):
    for name in "abc":
        pq.write_table(table(0, 10), tmp_path / f"{name}.parquet")
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    for name in "ac":
        (tmp_path / f"{name}.parquet").unlink()
    with pytest.raises(IncompatibleStateError, match=r"a\.parquet is gone.*c\.parquet is gone"):
        refuse_gaps(source, splits)


def test_the_same_row_groups_are_not_enough_to_be_the_same_file(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet", compression="snappy")
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    pq.write_table(table(), tmp_path / "a.parquet", compression="none")
    with pytest.raises(IncompatibleStateError, match="bytes instead of"):
        refuse_gaps(source, splits)


def same_size_other_groups(file: Path) -> None:
    """Replace ``file`` by one of equal size with other row groups: 10 = 5 + 5 rows."""
    size_bytes = file.stat().st_size
    rows = pa.table({"n": pa.array(range(10), pa.int64())})
    pq.write_table(rows, file, row_group_size=5, store_schema=False)
    padding = size_bytes - file.stat().st_size
    assert padding > 0
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\0" * padding + content[4:])


@pytest.mark.parametrize(
    ("row_group_size", "said"), [(10, "2 row groups"), (6, "5 rows in row group 0")]
)
def test_the_same_size_is_not_enough_to_be_the_same_file(tmp_path, row_group_size, said):
    file = tmp_path / "a.parquet"
    metadata = {"note": "x" * 2_000}
    rows = pa.table({"n": pa.array(range(10), pa.int64())})
    rows = rows.replace_schema_metadata(metadata)
    pq.write_table(rows, file, row_group_size=row_group_size)
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    same_size_other_groups(file)
    with pytest.raises(IncompatibleStateError, match=said):
        refuse_gaps(source, splits)


def test_a_file_that_is_read_to_its_end_may_go(tmp_path):
    pq.write_table(table(0, 10), tmp_path / "a.parquet")
    pq.write_table(table(10, 20), tmp_path / "b.parquet")
    source = ParquetSource(tmp_path)
    _, position = read(source, first_splits(source), polls=1)
    (tmp_path / "a.parquet").unlink()
    refuse_gaps(source, position)
    assert numbers(read(source, position)[0]) == list(range(10, 20))


@pytest.mark.parametrize("name", ["secret.parquet", "payments/../secret.parquet"])
def test_a_checkpoint_that_names_another_file_makes_nobody_open_it(tmp_path, name):
    (tmp_path / "payments").mkdir()
    for path in ("payments/a.parquet", "secret.parquet"):
        pq.write_table(table(), tmp_path / path)
    secret = first_splits(ParquetSource(tmp_path / "secret.parquet"))
    at = secret.schema.get_field_index("path")
    forged = secret.set_column(at, "path", pa.array([f"{tmp_path}/{name}"]))
    source = ParquetSource(tmp_path / "payments")
    for use in (source.gaps, source.open):
        with pytest.raises(IncompatibleStateError, match="not below the input") as caught:
            use(forged)
        assert caught.value.code is ErrorCode.SOURCE_CHANGED


@pytest.mark.parametrize("pattern", ["pay*", "payments/*.parquet", "*/a.parquet", "../x/payments"])
def test_what_an_input_lists_is_of_it(tmp_path, monkeypatch, pattern):
    (tmp_path / "x/payments").mkdir(parents=True)
    pq.write_table(table(), tmp_path / "x/payments/a.parquet")
    monkeypatch.chdir(tmp_path / "x")
    source = ParquetSource(pattern)
    splits = first_splits(source)
    refuse_gaps(source, splits)
    assert len(numbers(read(source, splits)[0])) == ROWS


def test_files_that_appear_later_are_not_read(tmp_path):
    pq.write_table(table(10, 20), tmp_path / "b.parquet")
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    pq.write_table(table(0, 10), tmp_path / "a.parquet")
    refuse_gaps(source, splits)
    assert numbers(read(source, splits)[0]) == list(range(10, 20))


def test_a_directory_that_now_begins_with_another_schema_does_not_fit(tmp_path):
    pq.write_table(table(), tmp_path / "b.parquet")
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    pq.write_table(pa.table({"other": [1]}), tmp_path / "a.parquet")
    with pytest.raises(IncompatibleStateError, match=r"more columns \(also n, name, at\)|fewer"):
        refuse_gaps(source, splits)


def test_the_path_is_absolute_for_workers_in_other_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ParquetSource("data").describe() == {
        "connector": "parquet",
        "path": str(tmp_path / "data"),
        "columns": None,
    }


@pytest.mark.parametrize(
    "options",
    [{"path": "gs://bucket/x"}, {"columns": []}, {"columns": "name"}, {"batch_rows": 0}],
    ids=str,
)
def test_impossible_options_are_refused_at_once(options):
    with pytest.raises(ConfigurationError) as caught:
        ParquetSource(**{"path": "data"} | options)
    assert caught.value.code is ErrorCode.INVALID_OPTION


def test_the_rest_of_a_file_that_is_gone_can_be_skipped(tmp_path):
    for name in "ab":
        pq.write_table(table(0, 10), tmp_path / f"{name}.parquet")
    source = ParquetSource(tmp_path)
    splits = first_splits(source)
    (tmp_path / "a.parquet").unlink()
    (gap,) = source.gaps(splits)
    assert (gap.why, gap.rows_lost, gap.available) == ("changed", 10, None)
    with pytest.raises(IncompatibleStateError, match="skip-split instead"):
        source.mend(splits, gap, "earliest")
    mended = source.mend(splits, gap, "skip-split")
    assert source.gaps(mended) == []
    batches, _ = read(source, mended)
    assert sum(batch.num_rows for batch in batches) == 10


def test_a_file_with_other_rows_in_a_later_row_group_is_not_the_same(tmp_path):
    file = tmp_path / "a.parquet"

    def write(*sizes: int) -> None:
        rows = pa.table({"i": pa.array(range(20), pa.int64())})
        options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
        with pq.ParquetWriter(file, rows.schema, store_schema=False, **options) as writer:
            start = 0
            for size in sizes:
                writer.write_table(rows.slice(start, size))
                start += size

    write(5, 5, 10)
    source = ParquetSource(file)
    splits = first_splits(source)
    size_bytes = file.stat().st_size
    write(5, 10, 5)
    assert file.stat().st_size == size_bytes
    with pytest.raises(DataError, match="10 rows in row group 1"):
        read(source, splits)
