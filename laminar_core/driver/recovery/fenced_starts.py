"""Decide whether the owner of a job starts it again after a sink has fenced it.

Source: PROTOCOL section 11.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from laminar_core.errors import ErrorCode, FencedError, StorageUnavailable


class FencedStarts:
    """Starts that a sink has fenced since the last one that settled its output.

    A driver of this store that slept fences its successor once: then it finds the newer claim and
    ends. If the next start is fenced as well, the sink is held by a driver of another store, such
    as the original of this copy. Its generations are counted apart, so more starts would only
    claim numbers until this store takes the sink away from its owner.
    """

    def __init__(self) -> None:
        self._was_fenced = False

    @contextmanager
    def once(self) -> Iterator[None]:
        """Let the first fence since the last settled start be a reason to start again.

        Raises:
            FencedError: it is the second.
            StorageUnavailable: it is the first; or anything else did not answer.
        """
        try:
            yield
        except StorageUnavailable as error:
            if not isinstance(error.__cause__, FencedError):
                raise
            if self._was_fenced:
                raise FencedError(
                    ErrorCode.FENCED,
                    f"{error}; so it was at the start before, and this store knows no newer "
                    "driver: look whether a job with another store, or with the original of this "
                    "one, writes there, and run only one of them",
                ) from error
            self._was_fenced = True
            raise

    def settled(self) -> None:
        """Note that a start has settled its output: no sink has fenced it."""
        self._was_fenced = False
