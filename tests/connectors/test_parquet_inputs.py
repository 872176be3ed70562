"""Parquet files of a bucket are an input like those of a directory."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from boto3.session import Session

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.files import s3_place
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.objectstore.opening import open_object_store
from laminar_core.objectstore.s3_options import S3Options
from tests.objectstore.s3_servers import S3Server

ROWS = 30


def store(uri: str, name: str, data: bytes) -> None:
    """A name such as ``day=1`` is none of a checkpoint store."""
    options = S3Options.parse(uri)
    client = Session().client("s3", endpoint_url=options.endpoint_url)
    client.put_object(Bucket=options.bucket, Key=f"{options.prefix}/{name}", Body=data)


def put(uri: str, name: str, start: int, stop: int) -> None:
    table = pa.table({"n": range(start, stop), "kind": [f"k{n % 3}" for n in range(start, stop)]})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=4, write_page_checksum=True)
    store(uri, name, buffer.getvalue())


@pytest.fixture
def uri(s3_server: S3Server) -> str:
    uri = s3_server.uri()
    put(uri, "b.parquet", 20, ROWS)
    put(uri, "day=1/a.parquet", 10, 20)
    put(uri, "a.parquet", 0, 10)
    put(uri, "_staging/x.parquet", 90, 99)
    store(uri, "notes.txt", b"no rows")
    return uri


def read(source: ParquetSource, splits: pa.Table, polls: int | None = None):
    reader, found = source.open(splits), []
    while not reader.finished and polls != len(found):
        found.append(reader.poll(3).rows)
    position = reader.position()
    reader.close()
    return [n for batch in found for n in batch.column("n").to_pylist()], position


def test_all_rows_below_the_prefix_come_once_in_the_order_of_names(uri: str) -> None:
    source = ParquetSource(uri)
    splits = first_splits(source)
    assert splits.num_rows == 9
    place = uri.partition("?")[0]
    assert splits["path"][0].as_py() == f"{place}/a.parquet"
    rows, _ = read(source, splits)
    assert rows == [*range(10), *range(20, 30), *range(10, 20)]
    assert source.schema().names == ["n", "kind"]


@pytest.mark.large
def test_reading_goes_on_anywhere_with_other_parameters_too(uri: str) -> None:
    source = ParquetSource(uri)
    whole, _ = read(source, first_splits(source))
    for polls in (1, 2, 5):
        before, position = read(source, first_splits(source), polls)
        after, _ = read(ParquetSource(f"{uri}&parallel=2"), position)
        assert before + after == whole
    assert ParquetSource(f"{uri}&parallel=2").describe() == source.describe()


def test_a_file_that_is_gone_or_another_is_noticed(uri: str) -> None:
    source = ParquetSource(uri)
    splits = first_splits(source)
    put(uri, "a.parquet", 0, 7)
    open_object_store(uri).delete("b.parquet")
    gaps = source.gaps(splits)
    assert [(gap.split.rpartition("/")[2], gap.rows_lost) for gap in gaps] == [
        ("a.parquet", 10),
        ("b.parquet", 10),
    ]
    with pytest.raises(DataError, match="was replaced since it was pinned"):
        read(source, splits)


def test_a_file_that_is_replaced_while_it_is_read_stops_reading(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_place, "RANGE_BYTES", 100)
    source = ParquetSource(uri)
    reader = source.open(first_splits(source))
    assert reader.poll(1) is not None
    put(uri, "a.parquet", 50, 60)
    with pytest.raises(DataError, match="another object by now"):
        list(iter(lambda: reader.poll(4), None))
    reader.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["../other/a.parquet", "/a.parquet", "x/../a.parquet", ""])
def test_a_checkpoint_that_names_another_object_makes_no_request(uri: str, name: str) -> None:
    source = ParquetSource(uri)
    splits = first_splits(source)
    named = pa.array([f"{uri.partition('?')[0]}/{name}"] * splits.num_rows)
    splits = splits.set_column(splits.schema.get_field_index("path"), "path", named)
    with pytest.raises(IncompatibleStateError, match="which is not below the input"):
        source.open(splits)


def test_a_prefix_without_files_and_a_bucket_that_is_not_there_are_refused(s3_server) -> None:
    empty = s3_server.uri()
    with pytest.raises(ConfigurationError, match="parquet file below"):
        ParquetSource(empty).schema()
    with pytest.raises(ConfigurationError) as caught:
        ParquetSource(empty.replace("s3://", "s3://no-", 1)).schema()
    assert caught.value.code is ErrorCode.NO_SUCH_BUCKET
    with pytest.raises(ConfigurationError, match="colour"):
        ParquetSource("s3://bucket/x?colour=red")
