"""Objects below a prefix are read in ranges of one version."""

import pyarrow as pa
import pytest
from boto3.session import Session

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.files import s3_place
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.places import FileChangedError
from laminar_core.connectors.files.s3_place import S3Place
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.errors import IncompatibleStateError
from laminar_core.objectstore.s3_options import S3Options
from tests.connectors.gap_checks import refuse_gaps
from tests.objectstore.fault_proxy import Effect, Fault, FaultProxy
from tests.objectstore.s3_servers import S3Server

LINES = b"".join(b'{"n":%d}\n' % n for n in range(1_000))


@pytest.fixture
def uri(s3_server: S3Server) -> str:
    """A prefix with three objects."""
    uri = s3_server.uri()
    for name in ("a.json", "day=1/b.json", "day=2/c.json"):
        put(uri, name, LINES)
    return uri


def put(uri: str, name: str, data: bytes | None) -> None:
    """Write an object, or delete it."""
    options = S3Options.parse(uri)
    client = Session().client("s3", endpoint_url=options.endpoint_url)
    key = f"{options.prefix}/{name}"
    if data is None:
        client.delete_object(Bucket=options.bucket, Key=key)
    else:
        client.put_object(Bucket=options.bucket, Key=key, Body=data)


def test_objects_are_listed_by_name_behind_a_name_too(uri: str) -> None:
    place = S3Place(uri)
    assert [(f.name, f.size_bytes) for f in place.files()] == [
        (name, len(LINES)) for name in ("a.json", "day=1/b.json", "day=2/c.json")
    ]
    assert [f.name for f in place.files("day=1/b.json")] == ["day=2/c.json"]
    found = place.stat("a.json")
    assert found is not None
    assert found.version == next(iter(place.files())).version
    assert place.stat("gone") is None


def test_an_object_is_read_in_ranges_from_any_byte(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_place, "RANGE_BYTES", 1_000)
    place = S3Place(uri)
    found = place.stat("a.json")
    assert found is not None
    file = place.open(found)
    for start in (0, 999, 1_000, 5_000, len(LINES) - 1, len(LINES)):
        file.seek(start)
        data = b"".join(iter(lambda: file.read(333), b""))
        assert data == LINES[start:]


def test_another_object_of_the_same_name_and_one_that_is_gone_are_noticed(uri: str) -> None:
    place = S3Place(uri)
    found = place.stat("a.json")
    assert found is not None
    put(uri, "a.json", LINES.replace(b"1", b"2"))
    with pytest.raises(FileChangedError):
        place.open(found).read(10)
    put(uri, "a.json", None)
    with pytest.raises(FileNotFoundError):
        place.open(found).read(10)


def test_another_range_is_no_answer(uri: str, proxy: FaultProxy, s3_server: S3Server) -> None:
    place = S3Place(uri.replace(s3_server.endpoint, proxy.endpoint))
    found = place.stat("a.json")
    assert found is not None
    headers = {"ETag": found.version, "Content-Range": f"bytes 1-{len(LINES)}/{len(LINES) + 1}"}
    proxy.script(Fault("GetObject", Effect.SAY, 206, headers=headers, body=LINES[::-1]))
    assert place.open(found).read(len(LINES)) == LINES


def test_a_source_reads_a_prefix_once(uri: str) -> None:
    source = FileSource(uri, JsonFormat(), pa.schema([("n", pa.int64())]), pattern="*.json")
    splits = first_splits(source)
    reader, seen = source.open(splits), 0
    while not reader.finished:
        batch = reader.poll(300)
        seen += 0 if batch is None else batch.rows.num_rows
        reader = source.open(reader.position())
    assert seen == 3_000
    put(uri, "day=1/b.json", None)
    with pytest.raises(IncompatibleStateError, match=r"day=1/b.json is gone"):
        refuse_gaps(source, splits)


@pytest.mark.parametrize("ordered", [True, False])
def test_objects_that_come_are_found_at_once_and_each_of_them_once(
    uri: str, *, ordered: bool
) -> None:
    columns = pa.schema([("n", pa.int64())])
    source = FileSource(uri, JsonFormat(), columns, mode="continuous", ordered=ordered)
    discovery = source.discovery()
    first = discovery.step({})
    assert sorted(first.splits["split"].to_pylist()) == ["a.json", "day=1/b.json", "day=2/c.json"]
    assert not first.complete
    put(uri, "day=3/d.json", LINES)
    put(uri, "_day=3/d.json", LINES)
    second = discovery.step(first.state)
    assert second.splits.select(["split_id", "split"]).to_pylist() == [
        {"split_id": 3, "split": "day=3/d.json"}
    ]
    put(uri, "a.json", LINES + LINES)
    third = discovery.step(second.state)
    assert third.splits.num_rows == 0
    changed = [] if ordered else ["was changed after it was found, and is not read again: a.json"]
    assert list(third.problems) == changed
    assert discovery.step(first.state).splits["split"].to_pylist() == ["day=3/d.json"]
