"""A driver that somebody else started, seen through its claim in the store."""

import os
from pathlib import Path

from laminar_core.records.manifest import Owner
from laminar_core.store.owner import is_running


class AdoptedProcess:
    """The part of ``subprocess.Popen`` that the campaign needs, without the exit code."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.pid = owner.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return None as long as it runs."""
        if self.returncode is None and not is_running(self._owner):
            self.returncode = 0
        return self.returncode

    def wait(self) -> int | None:
        """Return how it ended, if it has; nobody waits for somebody else's process."""
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def newest_log(folder: Path) -> Path:
    """Return the log of the driver that was started last."""
    return max(folder.rglob("*.log"))
