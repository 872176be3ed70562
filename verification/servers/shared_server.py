"""One server of a kind for all processes of a test run, ended when the last of them has ended.

Each process that uses the server holds a shared lock on a file. The *keeper*, the process that
started the server, waits for the exclusive lock: it gets it when the last user has ended, however
that came about, because the system releases the locks of a process that was killed. Nothing is
counted and nothing is looked up again and again.
"""

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from verification.servers.kafka_broker import KafkaBroker, SecuredKafkaBroker
from verification.servers.postgres_server import PostgresServer
from verification.servers.schema_registry_server import SchemaRegistryServer

_IN_USE, _STARTING, _ADDRESS = "in-use", "starting", "address"


class Server(AbstractContextManager["Server"], Protocol):
    """A server that runs while it is entered."""

    @property
    def address(self) -> str:
        """The host and port for clients, or a URL; several are separated by spaces."""
        ...


KINDS: dict[str, Callable[..., Server]] = {
    "kafka": KafkaBroker,
    "postgres": PostgresServer,
    "schema-registry": SchemaRegistryServer,
    "secured-kafka": SecuredKafkaBroker,
}
"""Each takes the folder with its programs, the one for its data, and words of its own."""


def data_of(folder: Path) -> Path:
    """Return where the server of ``folder`` has its data."""
    return folder / "server"


@contextmanager
def shared_server(kind: str, programs: Path, folder: Path, *words: str) -> Iterator[str]:
    """Yield the address of the server of ``folder``; the first user starts it.

    Raises:
        RuntimeError: it did not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _IN_USE).open("w") as use, (folder / _STARTING).open("w") as starting:
        fcntl.flock(use, fcntl.LOCK_SH)  # Waits while a keeper ends its server.
        fcntl.flock(starting, fcntl.LOCK_EX)
        address = folder / _ADDRESS
        if not address.exists():
            _start_keeper(kind, programs, folder, *words)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield address.read_text()


def _start_keeper(kind: str, programs: Path, folder: Path, *words: str) -> None:
    # A session of its own: an interrupt from the keyboard ends the users first.
    keeper = subprocess.Popen(  # noqa: S603 - its own words
        [sys.executable, "-m", __name__, kind, str(programs), str(folder), *words],
        cwd=Path(__file__).parents[2], start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert keeper.stdout is not None
    with keeper.stdout as said:
        line = said.readline()
        if line.strip() != "ready":
            raise RuntimeError(f"no {kind}: {line}{said.read()}")
    keeper.returncode = 0  # It outlives this process, which does not wait for it.


def keep(kind: str, programs: Path, folder: Path, *words: str) -> None:
    """Run the server of ``folder`` until the last user has ended."""
    # The lock is given back last: until then nobody starts another server here.
    made = KINDS[kind](programs, data_of(folder), *words)
    with (folder / _IN_USE).open() as use, made as server:
        address = folder / _ADDRESS
        draft = folder / "address.new"
        draft.write_text(server.address)
        draft.rename(address)
        print("ready", flush=True)  # noqa: T201 - the answer to the process that waits for it
        sys.stdout.close()
        fcntl.flock(use, fcntl.LOCK_EX)
        address.unlink()


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
