"""The logs of detached drivers: one per start, few, bounded, and followed while they grow."""

import os
from pathlib import Path

import pytest

from laminar_core.resources.drivers.log import LogTail, bound_logs, open_log

NOON_MS = 1_700_000_000_123


def start(folder: Path, text: str, now_ms: int = NOON_MS) -> Path:
    path, descriptor = open_log(folder, now_ms)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    return path


def test_each_start_has_a_file_of_its_own(tmp_path: Path) -> None:
    paths = [start(tmp_path / "orders", f"{n}") for n in range(3)]
    assert paths[0].name == "20231114T221320.123Z.log"
    assert [path.read_text() for path in paths] == ["0", "1", "2"]


def test_the_oldest_are_deleted_with_what_was_cut_off(tmp_path: Path) -> None:
    paths = [start(tmp_path, "x" * 9, NOON_MS + n) for n in range(4)]
    bound_logs(tmp_path, kept=4, bytes_max=5)
    assert bound_logs(tmp_path, kept=1, bytes_max=5) == paths[:3]
    assert sorted(p.name for p in tmp_path.iterdir()) == [paths[3].name, f"{paths[3].name}.old"]


def test_a_log_that_is_cut_goes_on_from_its_start(tmp_path: Path) -> None:
    """Goal: a driver that keeps its file open needs to know nothing of it."""
    path, descriptor = open_log(tmp_path, NOON_MS)
    os.write(descriptor, b"first line\n")
    bound_logs(tmp_path, kept=1, bytes_max=5)
    os.write(descriptor, b"next\n")
    os.close(descriptor)
    assert path.read_text() == "next\n"
    assert path.with_name(f"{path.name}.old").read_text() == "first line\n"


def test_nothing_is_cut_below_the_bound(tmp_path: Path) -> None:
    path = start(tmp_path, "short")
    bound_logs(tmp_path, kept=1, bytes_max=5)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_log_that_another_process_deletes_meanwhile_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [start(tmp_path, "x" * 9, NOON_MS + n) for n in range(2)]
    truncate = os.truncate

    def delete_first(path: Path, size: int) -> None:
        path.unlink()
        truncate(path, size)

    monkeypatch.setattr(os, "truncate", delete_first)
    assert bound_logs(tmp_path, kept=2, bytes_max=5) == []
    assert sorted(tmp_path.glob("*.log")) == []
    assert len(list(tmp_path.glob("*.old"))) == len(paths)


def test_a_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path, descriptor = open_log(tmp_path, NOON_MS)
    tail = LogTail(path)
    seen = []
    for piece in (b'{"event": "da', b'ta-flowing"}\nTraceback\n', b"Error: no\n", b"\n"):
        os.write(descriptor, piece)
        seen.append([event["event"] for event in tail.read_events()])
    os.close(descriptor)
    assert seen == [[], ["data-flowing"], [], []]
    assert tail.last_line == "Error: no"


def test_why_a_driver_failed_is_its_last_line(tmp_path: Path) -> None:
    path = start(tmp_path, 'noise\n{"event": "failed", "message": "no column merchant"}\n')
    tail = LogTail(path)
    assert [event["event"] for event in tail.read_events()] == ["failed"]
    assert tail.last_line == "no column merchant"
