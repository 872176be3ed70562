from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.segment import SegmentRef
from laminar_core.worker.read_ahead import read_ahead
from tests.records.manifests import DIGEST


def segments(*sizes: int) -> list[SegmentRef]:
    return [
        SegmentRef(path=f"shared/{number}", size_bytes=size, sha256=DIGEST, row_count=1)
        for number, size in enumerate(sizes)
    ]


class Files:
    """Notes which files were read."""

    def __init__(self, bad: str = "") -> None:
        self.read: list[str] = []
        self._bad = bad

    def __call__(self, segment: SegmentRef) -> str:
        self.read.append(segment.path)
        if segment.path == self._bad:
            raise CorruptCheckpointError(ErrorCode.DIGEST_DIFFERS, segment.path)
        return segment.path


def test_files_come_in_order_whatever_reads_them() -> None:
    some = segments(*range(1, 40))
    with ThreadPoolExecutor(4) as threads:
        found = list(read_ahead(some, Files(), threads, 100))
    assert found == list(read_ahead(some, Files(), None))
    assert [segment for segment, _ in found] == some


def test_no_more_is_read_ahead_than_allowed_and_a_large_file_alone() -> None:
    executor = _Immediate()
    reading = read_ahead(segments(4, 4, 4, 50, 1), Files(), executor, 10)
    next(reading)
    assert len(executor.later) == 1, "two of 4 bytes were asked for, and one was read"
    executor = _Immediate()
    assert next(read_ahead(segments(50, 4), Files(), executor, 10))[1] == "shared/0"
    assert executor.later == []


def test_nothing_is_read_before_the_first_file_is_asked_for() -> None:
    files = Files()
    with ThreadPoolExecutor(1) as threads:
        reading = read_ahead(segments(1, 1), files, threads)
        assert files.read == []
        next(reading)
    reading.close()


def test_an_error_comes_in_the_place_of_its_file() -> None:
    with ThreadPoolExecutor(4) as threads:
        reading = read_ahead(segments(1, 1, 1, 1), Files("shared/2"), threads)
        assert [path for _, path in (next(reading), next(reading))] == ["shared/0", "shared/1"]
        with pytest.raises(CorruptCheckpointError, match="shared/2"):
            next(reading)


def test_files_that_nobody_asks_for_any_more_are_not_read() -> None:
    files, executor = Files(), _Immediate()
    reading = read_ahead(segments(1, 1, 1), files, executor, 10)
    next(reading)
    reading.close()
    assert files.read == ["shared/0"]
    assert [future.cancelled() for future in executor.later] == [True, True]


class _Immediate(Executor):
    """Runs the first call at once, and none of the others."""

    def __init__(self) -> None:
        self.later: list[Future[str]] = []
        self._is_first = True

    def submit(self, fn, /, *args, **kwargs):
        future: Future[str] = Future()
        if self._is_first:
            self._is_first = False
            future.set_result(fn(*args, **kwargs))
        else:
            self.later.append(future)
        return future
