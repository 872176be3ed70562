"""The failures that the runbook's commands are for: each makes one, and clears it away."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.reserve import keep_reserve
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.store.owner import this_process
from tests.objectstore.full_disks import fill, mounted, remount_read_only
from tests.orchestration.operations_world import CHECKPOINTS, Driver, World
from tests.store.stores import claimant, gone, never

Failure = Callable[[World, pytest.MonkeyPatch], AbstractContextManager[None]]


@contextmanager
def stopped(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    world.begin_anew()
    yield


@contextmanager
def running(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    world.begin_anew()
    driver = Driver(world.store)
    driver.start()
    try:
        yield
    finally:
        driver.over.set()
        driver.join()


@contextmanager
def dead(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    """The newest generation is of a process of this machine that is gone, and it never ended."""
    world.begin_anew()
    owner = claimant(gone(this_process()))
    generation = world.store.claims.claim(owner, wait_ms=never, take_over=True)
    world.store.generations.record_base(generation, max(CHECKPOINTS))
    yield


@contextmanager
def damaged(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    world.begin_anew()
    newest = world.store.manifests.read(max(CHECKPOINTS))
    world.store.objects.put(world.store.paths.absolute(newest.files()[0].path), b"damaged")
    yield


@contextmanager
def away(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    """Lose a mount: the directory is not there."""
    world.begin_anew()
    store = world.place / "store"
    store.rename(world.place / "elsewhere")
    try:
        yield
    finally:
        (world.place / "elsewhere").rename(store)


@contextmanager
def full(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every write asks whether there is space; there is as much as was deleted since."""
    world.begin_anew()
    keep_reserve(world.store.objects, RetentionPaths(world.store.paths))
    size_bytes = used_bytes(world.place / "store")
    write = LocalObjectStore._write_temporary

    def write_if_there_is_space(self, directory, data):
        if used_bytes(world.place / "store") + memoryview(data).nbytes > size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, directory, data)

    monkeypatch.setattr(LocalObjectStore, "_write_temporary", write_if_there_is_space)
    yield
    monkeypatch.undo()


def used_bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


@contextmanager
def readonly(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    world.begin_anew()

    def refuse(*_args, **_kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(LocalObjectStore, "_write_temporary", refuse)
        patched.setattr(Path, "unlink", refuse)
        yield


@contextmanager
def mounted_full(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    with mounted(world.place / "store") as place:
        world.begin_anew()
        keep_reserve(world.store.objects, RetentionPaths(world.store.paths))
        fill(place)
        yield


@contextmanager
def mounted_readonly(world: World, _: pytest.MonkeyPatch) -> Iterator[None]:
    with mounted(world.place / "store") as place:
        world.begin_anew()
        remount_read_only(place)
        yield


FAILURES: Mapping[str, Failure] = {
    "stopped": stopped,
    "running": running,
    "dead": dead,
    "damaged": damaged,
    "away": away,
    "full": full,
    "readonly": readonly,
}
MOUNTED: Mapping[str, Failure] = {"full": mounted_full, "readonly": mounted_readonly}
"""Failures on a file system of its own, which only root can mount."""
