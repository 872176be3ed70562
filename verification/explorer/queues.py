"""Small values as numbers.

Equal values have equal numbers, so a whole state is a tuple of numbers.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Numbered(Generic[T]):
    """Values, numbered from 0 in the order they came up."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._values: list[T] = []

    def number(self, value: T, key: Hashable = None) -> int:
        """Return the value's number; ``key`` represents a value that is not hashable itself."""
        known = self._numbers.setdefault(value if key is None else key, len(self._values))  # pyright: ignore[reportArgumentType] - without a key it is hashable
        if known == len(self._values):
            self._values.append(value)
        return known

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)


EMPTY = 0
"""Number of the queue with nothing in it."""


class Queues:
    """FIFO queues of numbers, themselves numbered."""

    def __init__(self) -> None:
        self._contents: Numbered[tuple[int, ...]] = Numbered()
        self._contents.number(())
        self._pushed: dict[tuple[int, int], int] = {}
        self._popped: dict[int, tuple[int, int]] = {}

    def push(self, queue: int, item: int) -> int:
        """Return the queue with one more item at its end."""
        key = (queue, item)
        if key not in self._pushed:
            self._pushed[key] = self._contents.number((*self._contents[queue], item))
        return self._pushed[key]

    def pop(self, queue: int) -> tuple[int, int]:
        """Return the first item, and the queue without it."""
        if queue not in self._popped:
            first, *rest = self._contents[queue]
            self._popped[queue] = (first, self._contents.number(tuple(rest)))
        return self._popped[queue]

    def items(self, queue: int) -> tuple[int, ...]:
        """Return the items of the queue, first come first."""
        return self._contents[queue]
