"""Waiting rows come back in order, from memory or from disk, and the disk space is freed."""

from collections import deque
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.types import Batch, CancelMarker, CheckpointId, EndOfInput
from laminar_core.worker.spill import SpillQueue

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.dictionary(pa.int32(), pa.string()))])
ROW_BYTES = 8


def batch(first: int, rows: int = 4) -> Batch[pa.RecordBatch]:
    """Every batch has a dictionary of its own, as batches from the wire may."""
    ids = pa.array(range(first, first + rows), pa.int64())
    names = pa.array([f"n{first}-{n}" for n in range(rows)]).dictionary_encode()
    return Batch(pa.RecordBatch.from_arrays([ids, names], schema=SCHEMA))


def marker(number: int) -> CancelMarker:
    return CancelMarker(CheckpointId(number))


def open_files(folder: Path) -> int:
    """Files in ``folder`` that this process holds open, with or without a name."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The one that lists them is closed by now.
            count += str(folder) in str(link.readlink())
    return count


@pytest.fixture
def queue(tmp_path: Path):
    created = tiny(tmp_path)
    yield created
    created.close()


def tiny(folder: Path, memory_bytes: int = 200) -> SpillQueue:
    return SpillQueue(
        SCHEMA, memory_bytes=memory_bytes, run_bytes=300, file_bytes=2_000, folder=str(folder)
    )


def put_many(queue: SpillQueue) -> None:
    for number in range(50):
        queue.put(batch(number))


def drain(queue: SpillQueue) -> list[ArrowElement]:
    return [queue.take() for _ in range(len(queue))]


def test_everything_comes_back_in_order_with_markers_in_their_places(queue: SpillQueue) -> None:
    sent: list[ArrowElement] = []
    for number in range(60):
        sent.append(batch(number * 10))
        if number % 7 == 0:
            sent.append(marker(number))
    sent.append(EndOfInput())
    for element in sent:
        queue.put(element)
    assert queue.spilled_bytes > 0
    assert drain(queue) == sent
    assert len(queue) == 0


def test_what_fits_stays_in_memory(tmp_path: Path) -> None:
    queue = tiny(tmp_path, memory_bytes=1_000_000)
    for number in range(10):
        queue.put(batch(number))
    assert (queue.spilled_bytes, open_files(tmp_path)) == (0, 0)
    queue.close()


def test_memory_is_bounded_however_much_waits(queue: SpillQueue) -> None:
    for number in range(300):
        queue.put(batch(number))
    in_memory = sum(e.data.nbytes for e in (*queue._front, *queue._back) if isinstance(e, Batch))
    assert in_memory <= 200 + 300
    assert queue.spilled_bytes > 100 * batch(0).data.nbytes


def test_disk_is_given_back_as_it_is_read(queue: SpillQueue, tmp_path: Path) -> None:
    for number in range(300):
        queue.put(batch(number))
    most = open_files(tmp_path)
    assert most > 3
    for _ in range(250):
        queue.take()
    assert open_files(tmp_path) < most / 2
    drain(queue)
    assert open_files(tmp_path) == 0


def test_no_file_has_a_name_that_a_killed_worker_could_leave_behind(
    queue: SpillQueue, tmp_path: Path
) -> None:
    for number in range(50):
        queue.put(batch(number))
    assert open_files(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


def test_closing_gives_the_disk_back(tmp_path: Path) -> None:
    queue = tiny(tmp_path)
    for number in range(50):
        queue.put(batch(number))
    queue.close()
    assert (open_files(tmp_path), len(queue)) == (0, 0)


def test_looking_at_the_first_element_does_not_take_it(queue: SpillQueue) -> None:
    for number in range(30):
        queue.put(batch(number))
    for number in range(30):
        assert queue.first == batch(number)
        assert queue.take() == batch(number)


def test_a_disk_that_takes_nothing_is_one_clear_line(tmp_path: Path) -> None:
    queue = tiny(tmp_path / "gone")
    with pytest.raises(StorageUnavailable) as caught:
        put_many(queue)
    assert caught.value.code is ErrorCode.SPILL_FAILED
    assert "set TMPDIR to a larger disk" in str(caught.value)
    assert "\n" not in str(caught.value)
    queue.close()


class FullDisk:
    """Takes so many bytes, then refuses."""

    def __init__(self, room: int) -> None:
        self.room = room

    def seek(self, offset: int) -> None:
        del offset

    def write(self, data: memoryview) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = min(self.room, len(data))
        self.room -= taken
        return taken

    def close(self) -> None:
        pass


def test_a_disk_that_fills_up_in_the_midst_of_a_run_is_noticed(
    queue: SpillQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: FullDisk(500))
    with pytest.raises(StorageUnavailable, match="No space left on device"):
        put_many(queue)


@given(
    st.lists(st.one_of(st.integers(1, 9), st.just(0), st.none()), max_size=80),
    st.integers(0, 500),
)
def test_any_series_of_puts_and_takes_is_fifo(actions: list[int | None], memory_bytes: int) -> None:
    """Rows to put, 0 for a marker, None to take; the model is a deque."""
    queue = SpillQueue(SCHEMA, memory_bytes=memory_bytes, run_bytes=150, file_bytes=700)
    model: deque[ArrowElement] = deque()
    for number, action in enumerate(actions):
        if action is None:
            if model:
                assert queue.take() == model.popleft()
            continue
        element = batch(number, action) if action else marker(number)
        queue.put(element)
        model.append(element)
        assert len(queue) == len(model)
    assert drain(queue) == list(model)
    queue.close()
