"""A database that is locked for a moment costs no write."""

from collections.abc import Iterator

import pytest
from sqlalchemy.exc import OperationalError

from laminar_core.resources.locked_database import until_unlocked


def no_time() -> Iterator[float]:
    while True:
        yield 0.0


class Locked:
    """A write that finds the database locked some times."""

    def __init__(self, times: int) -> None:
        self.left, self.calls = times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OperationalError("INSERT", None, Exception("database is locked"))
        return "written"


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_write_is_tried_until_the_database_is_free(times: int) -> None:
    write = Locked(times)
    assert until_unlocked(write, no_time()) == "written"
    assert write.calls == times + 1


def test_a_database_that_stays_locked_is_an_error() -> None:
    write = Locked(99)
    with pytest.raises(OperationalError, match="database is locked"):
        until_unlocked(write, no_time())
    assert write.calls == 6


def test_another_error_is_none_of_its_business() -> None:
    calls: list[int] = []

    def breaks() -> None:
        calls.append(1)
        raise KeyError

    with pytest.raises(KeyError):
        until_unlocked(breaks, no_time())
    assert calls == [1]
