"""One Kafka broker for all processes of a test run, ended when the last of them has ended.

Each process that uses the broker holds a shared lock on a file. The *keeper*, the process that
started the broker, waits for the exclusive lock: it gets it when the last user has ended, however
that came about, because the system releases the locks of a process that was killed. Nothing is
counted and nothing is looked up again and again.
"""

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verification.servers.kafka_broker import KafkaBroker

_IN_USE, _STARTING, _ADDRESS = "in-use", "starting", "address"


@contextmanager
def shared_broker(jars: Path, folder: Path) -> Iterator[str]:
    """Yield host and port of the broker of ``folder``; the first user starts it.

    Raises:
        RuntimeError: it did not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _IN_USE).open("w") as use, (folder / _STARTING).open("w") as starting:
        fcntl.flock(use, fcntl.LOCK_SH)  # Waits while a keeper ends its broker.
        fcntl.flock(starting, fcntl.LOCK_EX)
        address = folder / _ADDRESS
        if not address.exists():
            _start_keeper(jars, folder)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield address.read_text()


def _start_keeper(jars: Path, folder: Path) -> None:
    # A session of its own: an interrupt from the keyboard ends the users first.
    keeper = subprocess.Popen(  # noqa: S603 - its own words
        [sys.executable, "-m", __name__, str(jars), str(folder)],
        cwd=Path(__file__).parents[2], start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert keeper.stdout is not None
    with keeper.stdout as said:
        words = said.readline()
        if words.strip() != "ready":
            raise RuntimeError(f"no broker: {words}{said.read()}")
    keeper.returncode = 0  # It outlives this process, which does not wait for it.


def keep(jars: Path, folder: Path) -> None:
    """Run the broker of ``folder`` until the last user has ended."""
    with KafkaBroker(jars, folder / "broker") as broker, (folder / _IN_USE).open() as use:
        address = folder / _ADDRESS
        draft = folder / "address.new"
        draft.write_text(broker.bootstrap)
        draft.rename(address)
        print("ready", flush=True)  # noqa: T201 - the answer to the process that waits for it
        sys.stdout.close()
        fcntl.flock(use, fcntl.LOCK_EX)
        address.unlink()
        broker.kill()


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:]))
