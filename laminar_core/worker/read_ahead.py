"""Read files of state in other threads while earlier ones are put into place.

Reading, the digest and Arrow's validation hold no lock of the interpreter, and a bucket answers
many requests at a time. Results come in the order of the files, and so do errors.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TypeVar

from laminar_core.records.segment import SegmentRef

AHEAD_BYTES_MAX = 32 * 2**20
"""Bytes of files that are read and not yet put into place; a larger file is read alone."""

T = TypeVar("T")


def read_ahead(
    segments: Sequence[SegmentRef],
    read: Callable[[SegmentRef], T],
    executor: Executor | None,
    bytes_max: int = AHEAD_BYTES_MAX,
) -> Iterator[tuple[SegmentRef, T]]:
    """Yield each file with what ``read`` makes of it. The first request starts the reading.

    ``executor``: None reads one after the other in the caller's thread.

    Raises:
        Whatever ``read`` raises, in place of the file that it was called for.
    """
    if executor is None:
        yield from ((segment, read(segment)) for segment in segments)
        return
    waiting: deque[tuple[SegmentRef, Future[T]]] = deque()
    following = deque(segments)
    try:
        while following or waiting:
            ahead_bytes = sum(segment.size_bytes for segment, _ in waiting)
            while following and (not waiting or ahead_bytes + following[0].size_bytes <= bytes_max):
                segment = following.popleft()
                ahead_bytes += segment.size_bytes
                waiting.append((segment, executor.submit(read, segment)))
            segment, found = waiting.popleft()
            yield segment, found.result()
    finally:
        for _, unused in waiting:
            unused.cancel()
