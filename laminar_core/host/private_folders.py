"""Private folders of single processes, in a root that only this user can open.

A killed process cannot remove its folder. It holds a lock on it while it lives, and the kernel
releases the lock however the process ends. So a process that opens a folder in the same root
removes those without a lock: that their process is dead is known, not guessed from their age.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

_LOCK = "lock"
_DEAD = "dead-"


class PrivateFolder:
    """A folder of this process, from ``open`` to ``close``; a context manager of its path."""

    def __init__(self, path: Path, lock: TextIO) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, root: Path, prefix: str) -> Self:
        """Make a folder in ``root``, and remove folders of dead processes there.

        Raises:
            OSError: it cannot be made, or ``root`` is not this user's alone.
        """
        make_root(root)
        with _locked(root):
            for folder in list(root.iterdir()):
                if _is_left(folder):
                    _set_aside(folder)
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
            lock = (path / _LOCK).open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in list(root.glob(f"{_DEAD}*")):
            shutil.rmtree(folder, ignore_errors=True)
        return cls(path, lock)

    def close(self) -> None:
        """Remove everything; a second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Path:
        """Return the path."""
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the folder."""
        self.close()


def temporary_root(parent: str | None = None) -> Path:
    """Return this user's root for folders that end with their process; by default in ``TMPDIR``."""
    return Path(parent or tempfile.gettempdir()) / f"laminar-{os.getuid()}"


def make_root(root: Path) -> None:
    """Make the root, or check that only this user can open it.

    Its name can be guessed, and others may write to its parent folder: a root that another user has
    created, or replaced by a link, would expose the state.

    Raises:
        OSError: it cannot be made, is a link or no folder, is another user's, or is open to others.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode):
        problem = "it is a link, and no folder"
    elif found.st_uid != os.getuid():
        problem = f"it belongs to user {found.st_uid}"
    elif stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        problem = f"others can open it, its mode is {stat.S_IMODE(found.st_mode):04o}"
    else:
        return
    raise PermissionError(errno.EPERM, problem, str(root))


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the root's lock, so that no other process sees a folder before it is locked."""
    with (root / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_left(folder: Path) -> bool:
    """Its process is dead."""
    if folder.name == _LOCK or folder.name.startswith(_DEAD):
        return False
    try:
        with (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # It died before it had a lock, or is being removed.
        return True
    return True


def _set_aside(folder: Path) -> None:
    """Name it dead, so that it can be removed without the root's lock.

    A living process removes its own folder without that lock, and its file of the lock with it: the
    folder looks left for a moment, and may be gone now.
    """
    with suppress(FileNotFoundError):
        folder.rename(folder.with_name(f"{_DEAD}{folder.name}"))
