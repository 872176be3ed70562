"""The log files of detached drivers: one per start, bounded in number and size.

A driver appends to its file (``O_APPEND``), so the file can be cut while it is written to.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from laminar_core.resources.drivers.events import DriverEvent, event_of

_TAIL_BYTES_MAX = 1 << 20
"""Read at a time; a driver writes less between two looks."""


def open_log(folder: Path, now_ms: int) -> tuple[Path, int]:
    """Create a file named after the time; return its path and descriptor.

    The name differs from every other start's, even at the same moment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    time = datetime.fromtimestamp(now_ms / 1000, UTC)
    stem = f"{time:%Y%m%dT%H%M%S}.{now_ms % 1000:03}Z"
    for suffix in range(1000):
        path = folder / (f"{stem}-{suffix}.log" if suffix else f"{stem}.log")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            return path, os.open(path, flags, 0o644)
        except FileExistsError:
            continue
    raise AssertionError("a thousand starts in one millisecond")


def bound_logs(
    folder: Path, *, kept: int, bytes_max: int, spared: Collection[Path] = ()
) -> list[Path]:
    """Delete all but the newest ``kept`` logs and those ``spared``; cut those that are too long.

    What is cut off stays beside the file as ``….log.old`` until the next cut. Lines that a driver
    writes at that very moment may be lost: its events are in the store as well.

    Returns:
        The logs that were deleted.
    """
    logs = sorted(folder.glob("*.log"))
    deleted = [log for log in logs[: max(len(logs) - kept, 0)] if log not in spared]
    for path in deleted:
        path.unlink(missing_ok=True)
        _old(path).unlink(missing_ok=True)
    for path in sorted(set(logs) - set(deleted)):
        with suppress(FileNotFoundError):  # Another process may bound them at the same time.
            _cut(path, bytes_max)
    return deleted


def _cut(path: Path, bytes_max: int) -> None:
    if path.stat().st_size > bytes_max:
        shutil.copyfile(path, _old(path))
        os.truncate(path, 0)


class LogTail:
    """Follows a log that another process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._unfinished = b""
        self.last_line = ""
        """The last line that is not an event, or the driver's reason for its failure."""

    def read_events(self) -> Iterator[DriverEvent]:
        """Yield the events written since the last call."""
        for text in self._read_lines():
            event = event_of(text)
            if event is None:
                self.last_line = text.strip() or self.last_line
            else:
                if event["event"] == "failed":
                    self.last_line = str(event.get("message", ""))
                yield event

    def _read_lines(self) -> list[str]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(_TAIL_BYTES_MAX)
        self._offset += len(data)
        *complete, self._unfinished = (self._unfinished + data).split(b"\n")
        return [line.decode(errors="replace") for line in complete]


def _old(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")
