"""The rule for files in which several things have a part: no part is where it cannot be."""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Protocol

_NAMED_MAX = 20


class FilePart(Protocol):
    """Some bytes of a file, and what they are of."""

    @property
    def path(self) -> str: ...  # noqa: D102 - as the names say
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102
    @property
    def end(self) -> int: ...  # noqa: D102
    @property
    def channel(self) -> str: ...  # noqa: D102


def problem_of(sizes: Mapping[str, int], parts: Iterable[FilePart]) -> str | None:
    """Return why parts cannot be in files of these lengths in bytes; None: they can.

    Parts of a file do not overlap, and no file is without one. Bytes between parts are allowed.
    """
    ends = dict.fromkeys(sizes, 0)
    for part in sorted(parts, key=attrgetter("path", "offset", "size_bytes")):
        if part.path not in sizes:
            return f"{part.channel} is in a file that is not listed: {part.path}"
        if part.end > sizes[part.path]:
            return f"{part.channel} is behind the end of {part.path}"
        if part.offset < ends[part.path]:
            return f"{part.channel} overlaps with another part of {part.path}"
        ends[part.path] = part.end
    unused = sorted(path for path, end in ends.items() if not end)
    return f"files without parts: {unused[:_NAMED_MAX]}" if unused else None
