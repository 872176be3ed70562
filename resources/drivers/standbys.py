"""The standbys of one stream on this machine, and the proof that they live.

Each standby has a file of its own, locked with ``flock`` by a descriptor that the standby has
inherited. The system releases the lock when the process ends, however it ends. So a locked file
proves that its standby lives, without a look at process ids, which may be used again.

A second lock, of the folder, is held during a decision: of several processes that look after
the same stream, one starts a standby, and the others look again later.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from laminar_core.codec.digest import sha256_hex
from laminar_core.host.clock import Clock
from laminar_core.resources.drivers.log import bound_logs, open_log

RETIRE = signal.SIGUSR1
"""Ends a standby only while it waits: after a take-over, ``laminar run`` ignores it."""

_GUARD = str(Path(__file__).with_name("standby_guard.py"))
_POLL_MS = 50


@dataclass(frozen=True, slots=True)
class LivingStandby:
    """A process that was started as a standby, and lives; it may be the driver by now."""

    lock: Path
    log: Path
    digest: str
    """Digest of the command and the program with which it was started."""
    started_at_ms: int
    pid: int | None
    """None: it has not written it yet."""


class StandbyFolder:
    """The folder with the locks and logs of a stream's standbys."""

    def __init__(self, folder: Path, *, logs_kept: int, log_bytes_max: int) -> None:
        self._folder = folder
        self._kept, self._bytes_max = logs_kept, log_bytes_max

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the lock of the folder; yields False if another process holds it.

        Raises:
            OSError: the folder cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "keeper", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            yield _lock(descriptor)
        finally:
            os.close(descriptor)

    def living(self) -> list[LivingStandby]:
        """Return the standbys that live, oldest first."""
        found = (_read(path) for path in sorted(self._folder.glob("*.lock")) if _is_held(path))
        return [standby for standby in found if standby is not None]

    def start(
        self, command: Sequence[str], digest: str, env: Mapping[str, str], now_ms: int
    ) -> LivingStandby:
        """Start a standby; the lock of the folder must be held.

        Raises:
            OSError: there is no such program, or the folder cannot be written.
        """
        self.clean_up()
        log, output = open_log(self._folder, now_ms)
        path = log.with_suffix(".lock")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            facts = {"digest": digest, "started_at_ms": now_ms}
            os.write(lock, f"{json.dumps(facts)}\n".encode())
            process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
                [sys.executable, "-I", "-S", _GUARD, str(lock), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(env),
                start_new_session=True,
                pass_fds=(lock,),
            )
            # The standby notes its id by itself, but only once it runs. Until then, others know it
            # from this line, and can do without it.
            with suppress(OSError):
                os.write(lock, f"{process.pid}\n".encode())
        finally:
            os.close(output)
            os.close(lock)
        name = f"standby-{process.pid}"  # Waited for, so that it does not become a zombie.
        threading.Thread(target=process.wait, name=name, daemon=True).start()
        return LivingStandby(path, log, digest, now_ms, process.pid)

    def newest_log(self) -> Path | None:
        """Return the log of the standby that was started last; None: there was none."""
        return max(self._folder.glob("*.log"), default=None)

    def clean_up(self) -> list[Path]:
        """Delete old logs and cut long ones; returns the former. Logs of the living are kept."""
        living = {standby.log for standby in self.living()}
        deleted = bound_logs(
            self._folder, kept=self._kept, bytes_max=self._bytes_max, spared=living
        )
        for log in deleted:
            log.with_suffix(".lock").unlink(missing_ok=True)
        return deleted

    def wait_for_end(self, standbys: Sequence[LivingStandby], clock: Clock, wait_ms: float) -> bool:
        """Wait until none of them lives; return whether that is so."""
        deadline_ms = clock.monotonic_ms() + wait_ms
        while any(_is_held(standby.lock) for standby in standbys):
            if clock.monotonic_ms() >= deadline_ms:
                return False
            clock.wait_ms(_POLL_MS)
        return True


def retire(standby: LivingStandby) -> None:
    """Ask a standby to end; one that has become the driver ignores it."""
    if standby.pid is None:
        return
    with suppress(psutil.Error):
        process = psutil.Process(standby.pid)
        # In this order: a process that lives after the look at the lock is the one of the lock,
        # and psutil refuses to signal one that has got the same id later.
        if _is_held(standby.lock):
            process.send_signal(RETIRE)


def digest_of(command: Sequence[str], code_version: str) -> str:
    """Return what differs if a standby would run something else."""
    return sha256_hex(json.dumps([*command, code_version]).encode())


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read(path: Path) -> LivingStandby | None:
    """Return what is written in the file; without its first line nothing is known."""
    try:
        first, *rest = path.read_text().splitlines()
        facts: dict[str, Any] = json.loads(first)
        digest, started_at_ms = str(facts["digest"]), int(facts["started_at_ms"])
    except (OSError, ValueError, KeyError):
        return None
    pid = int(rest[0]) if rest and rest[0].isdigit() else None
    return LivingStandby(path, path.with_suffix(".log"), digest, started_at_ms, pid)
