"""How much memory a process may use: the limit of its container, or the machine's memory."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path("/")


def memory_limit_bytes(root: Path = ROOT) -> int:
    """Return the smallest limit of the control groups of this process, at most the memory.

    Source: the kernel's documentation of cgroup v1 (``memory.limit_in_bytes``) and v2
    (``memory.max``). A group is limited by its parents as well. Elsewhere than on Linux there are
    no such files.
    """
    return min(_limits(root), default=psutil.virtual_memory().total)


def _limits(root: Path) -> Iterator[int]:
    yield psutil.virtual_memory().total
    lines: list[str] = []
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in ("", "memory"):
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            mounted = root / "sys/fs/cgroup" / controllers
            group = mounted / path.lstrip("/")
            # A container often sees its own group as the root, whatever its path is.
            for folder in {mounted, group, *group.parents}:
                with suppress(OSError, ValueError):
                    if folder.is_relative_to(mounted):
                        yield int((folder / name).read_text(encoding="ascii"))
