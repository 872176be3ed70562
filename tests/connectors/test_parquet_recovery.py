"""Output of a checkpoint is visible whole or not at all, whenever the job dies (ADR-0009)."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from laminar_core.connectors.parquet_sink import ParquetSink
from tests.connectors.output_runs import INTERVAL, ROWS, SCHEMA, Death, Job, committed, visible


@dataclass
class Disk:
    """The operating system, which dies at its ``deadly``-th call and forgets what is not synced.

    ``contents`` are the inodes of synced files, ``names`` what each directory held when it was
    last synced.
    """

    deadly: int
    calls: int = 0
    contents: set[int] = field(default_factory=set)
    names: dict[Path, dict[Path, int]] = field(default_factory=dict)

    def install(self, monkeypatch):
        calls = [(Path, name) for name in ("open", "rename", "hardlink_to", "unlink")]
        for owner, name in [*calls, (os, "fsync")]:
            monkeypatch.setattr(owner, name, self.watch(name, getattr(owner, name)))

    def watch(self, name, real):
        def call(*args, **kwargs):
            self.calls += 1
            if self.calls == self.deadly:
                raise Death(name)
            if name == "fsync":
                self.remember(Path(f"/proc/self/fd/{args[0]}").resolve())
            return real(*args, **kwargs)

        return call

    def remember(self, path):
        if path.is_dir():
            self.names[path] = {file: file.stat().st_ino for file in path.iterdir()}
        else:
            self.contents.add(path.stat().st_ino)

    def lose_power(self, folder):
        """Undo renames and creations, and cut contents, that were not synced."""
        synced = {inode: file for names in self.names.values() for file, inode in names.items()}
        for file in [file for file in folder.rglob("*") if file.is_file()]:
            inode = file.stat().st_ino
            if inode not in self.contents:
                os.truncate(file, file.stat().st_size // 2)
            if file not in self.names.get(file.parent, {}):
                file.rename(synced[inode]) if inode in synced else file.unlink()


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("declined", "target_file_rows"), [((), 5), ((1,), 7), ((2, 3), 7), ((4,), 1000)]
)
def test_death_at_any_step_leaves_exactly_the_completed_rows(
    tmp_path, monkeypatch, declined, target_file_rows
):
    """Goal: I1 to I4, with unsynced data lost, and with checkpoints that were given up.

    Method: die at the first call to the operating system, then at the second, and so on until a
    run needs no more calls. After each death look as a reader, recover, and look again.
    """
    deadly, survived = 1, False
    while not survived:
        sink = ParquetSink(tmp_path / str(deadly), target_file_rows=target_file_rows)
        sink.check(SCHEMA)
        job = Job(sink, frozenset(declined))
        survived = die_and_recover(job, monkeypatch, deadly)
        deadly += 1
    assert deadly > 30


def die_and_recover(job, monkeypatch, deadly):
    path, survived = job.sink.directory.path, True
    with monkeypatch.context() as patch:
        disk = Disk(deadly)
        disk.install(patch)
        try:
            job.run()
        except Death:
            survived = False
    disk.lose_power(path)
    seen = committed(path)
    assert seen in [list(range(n)) for n in range(0, job.completed[1] + 1, INTERVAL)]
    assert set(seen) <= set(visible(path)) <= set(range(job.completed[1]))
    job.run()
    assert committed(path) == visible(path) == list(range(ROWS))
    assert list(job.sink.directory.staging.iterdir()) == []
    for writer in job.writers:  # A zombie that closes late does no harm.
        writer.writer.close()
        for file in writer.writer._pinned:
            file.abandon()
    assert committed(path) == list(range(ROWS))
    return survived
