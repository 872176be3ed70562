"""Rows that wait in the store for their commit: whole, of one sink, and deleted by generation."""

import pytest

from laminar_core.errors import CheckpointDeclined, CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.records.paths import JobPaths
from laminar_core.store.staging import StagingArea


@pytest.fixture
def staging() -> StagingArea:
    return StagingArea(MemoryObjectStore(), JobPaths("payments"), "out")


def test_a_file_is_named_after_its_writer_and_read_back_whole(staging):
    file = staging.put(Generation(3), 1, 17, b"rows")
    assert file.path == "staged/out/0000000003-1-00000017.arrow"
    assert staging.open(file).read() == b"rows"
    assert staging.problem(file) is None


def test_the_same_bytes_again_change_nothing_and_others_are_refused(staging):
    file = staging.put(Generation(1), 0, 0, b"rows")
    assert staging.put(Generation(1), 0, 0, b"rows") == file
    with pytest.raises(CheckpointDeclined, match="two sinks have one id"):
        staging.put(Generation(1), 0, 0, b"other")
    assert staging.open(file).read() == b"rows"


@pytest.mark.parametrize(
    ("data", "code"),
    [(None, "object-missing"), (b"row", "length-differs"), (b"ROWS", "digest-differs")],
)
def test_what_is_not_what_was_written_is_not_read(staging, data, code):
    file = staging.put(Generation(1), 0, 0, b"rows")
    key = staging.paths.absolute(file.path)
    if data is None:
        staging.objects.delete(key)
    else:
        staging.objects.put(key, data)
    with pytest.raises(CorruptCheckpointError) as damaged:
        staging.open(file)
    assert damaged.value.code.value == code
    assert staging.problem(file) == str(damaged.value)


@pytest.mark.parametrize(
    "path", ["staged/other/0000000001-0-00000000.arrow", "staged/out/x", "claims/1.json"]
)
def test_a_committable_cannot_reach_outside_its_sink(staging, path):
    file = staging.put(Generation(1), 0, 0, b"rows").model_copy(update={"path": path})
    staging.objects.put(staging.paths.absolute(path), b"rows")
    for use in (staging.open, lambda ref: staging.delete([ref])):
        with pytest.raises(CorruptCheckpointError, match="no file that sink out has staged") as no:
            use(file)
        assert no.value.code is ErrorCode.MANIFEST_UNREADABLE
    assert staging.objects.get(staging.paths.absolute(path)) == b"rows"


def test_deleting_twice_is_harmless(staging):
    files = [staging.put(Generation(1), 0, n, b"rows") for n in range(2)]
    for _ in range(2):
        staging.delete(files[:1])
    assert staging.problem(files[0]) is not None
    assert staging.problem(files[1]) is None


def test_only_older_generations_of_this_sink_lose_their_files(staging):
    other = StagingArea(staging.objects, staging.paths, "other")
    old = [staging.put(Generation(n), 0, 0, b"rows") for n in (1, 2)]
    kept = staging.put(Generation(3), 0, 0, b"rows")
    foreign = other.put(Generation(1), 0, 0, b"rows")
    staging.objects.put("payments/staged/out/notes.txt", b"a person's")
    assert staging.delete_before(Generation(3)) == 2
    assert all(staging.problem(file) for file in old)
    assert staging.problem(kept) is None
    assert other.problem(foreign) is None
    assert staging.objects.get("payments/staged/out/notes.txt") == b"a person's"
    assert staging.delete_before(Generation(3)) == 0
