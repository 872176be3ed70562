"""Flushed bytes are on the disk, on macOS too."""

import errno
import fcntl
import os
import sys

import pytest

from laminar_core.host.durability import flush_to_disk


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    descriptors: list[int] = []
    monkeypatch.setattr(os, "fsync", descriptors.append)
    return descriptors


class Disk:
    """Takes the request that only macOS has; answers with an error number if it has one."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self.requests: list[tuple[int, int]] = []

    def __call__(self, descriptor: int, request: int) -> None:
        self.requests.append((descriptor, request))
        if self.number is not None:
            raise OSError(self.number, os.strerror(self.number))


def on_macos(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Disk:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", disk)
    return disk


def test_elsewhere_than_on_macos_fsync_does_it(synced, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    flush_to_disk(7)
    assert synced == [7]


def test_macos_is_asked_to_empty_the_cache_of_the_disk(synced, monkeypatch):
    disk = on_macos(monkeypatch, Disk())
    flush_to_disk(7)
    assert (disk.requests, synced) == ([(7, 51)], [])


def test_a_file_system_that_does_not_know_the_request_is_synced_as_elsewhere(synced, monkeypatch):
    on_macos(monkeypatch, Disk(errno.ENOTSUP))
    flush_to_disk(7)
    assert synced == [7]


def test_an_error_of_the_disk_is_reported_and_not_tried_in_another_way(synced, monkeypatch):
    """A second request may succeed although what the first one lost is lost."""
    on_macos(monkeypatch, Disk(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        flush_to_disk(7)
    assert synced == []
