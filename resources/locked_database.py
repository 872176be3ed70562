"""Writes to Dagster's database, repeated while it is locked.

SQLite lets one process write at a time. The daemon, the webserver and every run write, so one of
them may find the database locked for longer than SQLite itself waits (5 s). A write that failed
this way has changed nothing.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from dagster._utils.backoff import backoff, exponential_delay_generator
from sqlalchemy.exc import OperationalError

T = TypeVar("T")

_TRIES = 5


def until_unlocked(write: Callable[[], T], delays_s: Iterator[float] | None = None) -> T:
    """Return what ``write`` returns; try it again, up to five times, if the database is locked.

    Raises:
        sqlalchemy.exc.OperationalError: it stays locked, or does not answer.
    """
    delays_s = delays_s or exponential_delay_generator(base_delay=0.2)
    return backoff(write, (OperationalError,), max_retries=_TRIES, delay_generator=delays_s)
