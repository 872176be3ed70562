"""Disks without space: one in memory, and a real file system of some megabytes for root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore

BLOCK_BYTES = 4096


def blocks(data: bytes | memoryview) -> int:
    return -(-memoryview(data).nbytes // BLOCK_BYTES)


class SmallDisk(MemoryObjectStore):
    """A store in memory with so many bytes; a write that does not fit leaves nothing behind."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.size_bytes = size_bytes

    @property
    def free_bytes(self) -> int:
        return self.size_bytes - BLOCK_BYTES * sum(map(blocks, self._objects.values()))

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._need(data)  # As on a disk, the old object stays until the new one is whole.
        super().put(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        self._need(data)
        return super().put_if_absent(key, data)

    def fill(self) -> None:
        """Somebody else takes all that is left."""
        self.size_bytes -= self.free_bytes

    def _need(self, data: bytes | memoryview) -> None:
        if BLOCK_BYTES * blocks(data) > self.free_bytes:
            raise StorageUnavailable(ErrorCode.STORE_FULL, "cannot write: no space left")


@contextmanager
def mounted(place: Path, size: str = "24m") -> Iterator[Path]:
    """Mount a file system of its own at ``place``."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("root cannot mount a file system in this container")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount_read_only(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)


def fill(place: Path) -> None:
    """Leave no byte free on the file system at ``place``."""
    piece = bytes(1 << 16)
    with (place / "filler").open("wb", buffering=0) as file:
        while piece:
            try:
                if file.write(piece) < len(piece):
                    piece = piece[: len(piece) // 2]
            except OSError:
                piece = piece[: len(piece) // 2]
