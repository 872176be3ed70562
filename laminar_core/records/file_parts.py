"""The rule for files in which several things have a part: no part is where it cannot be."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NAMED_MAX = 20


class FilePart(NamedTuple):
    """Some bytes of a file, and what they are of."""

    path: str
    offset: int
    size_bytes: int
    name: str

    @property
    def end(self) -> int:
        """Return the offset of the first byte behind the part."""
        return self.offset + self.size_bytes


def problem_of(sizes: Mapping[str, int], parts: Iterable[FilePart]) -> str | None:
    """Return why parts cannot be in files of these lengths in bytes; None: they can.

    Parts of a file do not overlap, and no file is without one. Bytes between parts are allowed.
    """
    ends = dict.fromkeys(sizes, 0)
    for part in sorted(parts):
        if part.path not in sizes:
            return f"{part.name} is in a file that is not listed: {part.path}"
        if part.end > sizes[part.path]:
            return f"{part.name} is behind the end of {part.path}"
        if part.offset < ends[part.path]:
            return f"{part.name} overlaps with another part of {part.path}"
        ends[part.path] = part.end
    unused = sorted(path for path, end in ends.items() if not end)
    return f"files without parts: {unused[:_NAMED_MAX]}" if unused else None
