"""Counts of requests and bytes, the same for every kind of store.

They follow Amazon's price list. A store that speaks S3 counts what it really sends: every part,
page and retry. Others count one request per call (``counting_store``).
"""

import threading
from dataclasses import dataclass, fields, replace
from typing import Literal, Self

RequestKind = Literal["puts", "gets", "lists", "deletes", "heads"]


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests and bytes of object contents since the store was opened, or between two moments."""

    puts: int = 0
    """Objects and parts written, multipart uploads begun and completed; also refused ones."""
    gets: int = 0
    lists: int = 0
    """Pages of listings, if the store has pages."""
    deletes: int = 0
    """Includes aborted multipart uploads. Amazon does not charge for these."""
    heads: int = 0
    retries: int = 0
    """Requests that were sent again; they are contained in the figures above."""
    bytes_up: int = 0
    bytes_down: int = 0

    def __sub__(self, earlier: Self) -> Self:
        """Return the requests since ``earlier``."""
        names = [field.name for field in fields(self)]
        return replace(self, **{n: getattr(self, n) - getattr(earlier, n) for n in names})

    def __add__(self, other: Self) -> Self:
        """Return the sum, for example of two processes."""
        names = [field.name for field in fields(self)]
        return replace(self, **{n: getattr(self, n) + getattr(other, n) for n in names})


class RequestCounter:
    """Counts up; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    @property
    def counts(self) -> RequestCounts:
        """The current counts."""
        return self._counts

    def request(self, kind: RequestKind, bytes_up: int = 0) -> None:
        """Count a request that is sent."""
        with self._lock:
            now = self._counts
            self._counts = replace(
                now, **{kind: getattr(now, kind) + 1}, bytes_up=now.bytes_up + bytes_up
            )

    def received(self, bytes_down: int) -> None:
        """Count bytes of an object that were received."""
        with self._lock:
            self._counts = replace(self._counts, bytes_down=self._counts.bytes_down + bytes_down)

    def retried(self) -> None:
        """Count that the next request repeats a failed one."""
        with self._lock:
            self._counts = replace(self._counts, retries=self._counts.retries + 1)
