"""A real PostgreSQL server: a cluster of its own in a folder, on a free port of loopback.

The programs are those of the machine. The settings are those of a server that is small, writes the
log that logical replication reads, and is found through TCP alone.
"""

import grp
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil

from laminar_core.host.clock import SystemClock
from verification.servers.kafka_broker import HOST, free_ports

START_SECONDS_MAX = 60
USER = "laminar"
"""The superuser of the cluster, who needs no password."""
SPARE_USER = "nobody"
"""PostgreSQL refuses to run as root. If we are root, it runs as this user of the system."""
_DEBIAN = Path("/usr/lib/postgresql")
_PROGRAMS = ("initdb", "postgres", "psql")
_STATUS_LINE = 7
_SETTINGS = """\
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
wal_level = logical
max_connections = 50
max_replication_slots = 20
max_wal_senders = 20
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
fsync = {fsync}
"""


class PostgresServer:
    """A PostgreSQL server, with a cluster that keeps its data from one start to the next.

    A context manager. The folders of root are closed to the user that the server runs as, so if we
    are root, the cluster is in a temporary folder of the system until the end.

    Args:
        programs: the folder with ``initdb``, ``postgres`` and ``psql``.
        folder: where the cluster and its log go; made if it is not there.
        settings: more lines of ``postgresql.conf``.
        is_synced: whether commits wait for the disk. What was committed survives the end of the
            server without that, but not the end of the machine.
    """

    def __init__(
        self,
        programs: Path,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        is_synced: bool = False,
    ) -> None:
        self.programs = programs
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[Any] | None = None
        self._held = ExitStack()
        text = _SETTINGS.format(host=HOST, port=self.port, fsync="on" if is_synced else "off")
        more = "".join(f"{name} = '{value}'\n" for name, value in (settings or {}).items())
        self._settings = text + more
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "server.log"
        self._cluster = folder / "cluster"

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            place = tempfile.TemporaryDirectory(prefix="laminar-postgres-")
            self._cluster = Path(self._held.enter_context(place)) / "cluster"
            shutil.chown(place.name, **_owner())
        try:
            self.start()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._held.close()

    def start(self) -> None:
        """Start it, with the data that are there, and wait until it takes connections.

        Raises:
            RuntimeError: it ended, or did not start in time; the message has the end of its log.
        """
        if not self._cluster.exists():
            self._make_cluster()
        with self._log.open("ab") as log:
            process: subprocess.Popen[Any] = subprocess.Popen(  # noqa: S603 - its own words
                [str(self.programs / "postgres"), "-D", str(self._cluster)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **self._surroundings(),
            )  # fmt: skip
        self._process = process
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 1000 * START_SECONDS_MAX
        while not self._is_ready(process.pid):
            if process.poll() is not None or clock.monotonic_ms() > deadline_ms:
                self.kill()
                raise RuntimeError(f"PostgreSQL did not start: {self._end_of_log()}")
            clock.wait_ms(20)

    def kill(self) -> None:
        """End all its processes as ``kill -9`` does; nothing if it does not run.

        The system keeps 56 bytes of shared memory for it until it is started again and stopped.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            # Each has a process group of its own. Frozen, the first one does not start others.
            main = psutil.Process(self._process.pid)
            main.suspend()
            each = main.children(recursive=True)
            for process in (*each, main):
                process.kill()
            clock = SystemClock()
            while not all(_has_ended(process) for process in each):
                clock.wait_ms(5)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End it at once, and give back the shared memory that ``kill -9`` leaves behind."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def _make_cluster(self) -> None:
        done = subprocess.run(  # noqa: S603 - its own words
            [
                str(self.programs / "initdb"), "--pgdata", str(self._cluster), "--username", USER,
                "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync",
            ],
            capture_output=True, text=True, check=False, **self._surroundings(),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"initdb failed: {(done.stderr or done.stdout)[-2000:]}")
        with (self._cluster / "postgresql.conf").open("a") as settings:
            settings.write(self._settings)

    def _is_ready(self, pid: int) -> bool:
        """Whether the server says so in the file by which its own tools know it."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        is_ours = lines[:1] == [str(pid)]
        return is_ours and [line.strip() for line in lines[_STATUS_LINE:]] == ["ready"]

    def _surroundings(self) -> dict[str, Any]:
        """The user, folder and variables of its processes."""
        owner: dict[str, Any] = {**_owner(), "extra_groups": []} if os.geteuid() == 0 else {}
        variables = {name: value for name, value in os.environ.items() if name[:2] != "PG"}
        return {**owner, "cwd": "/", "env": {**variables, "LC_ALL": "C"}}

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def postgres_programs() -> Path | None:
    """Return the folder with the newest PostgreSQL of the machine, or None."""
    folders = sorted(_DEBIAN.glob("*/bin"), key=lambda each: int(each.parent.name.split(".")[0]))
    if on_path := shutil.which("initdb"):
        folders.insert(0, Path(on_path).resolve().parent)
    whole = [each for each in folders if all((each / name).exists() for name in _PROGRAMS)]
    return whole[-1] if whole else None


def why_it_cannot_run() -> str | None:
    """Return why this process cannot start PostgreSQL, or None."""
    if os.geteuid() != 0:
        return None
    try:
        subprocess.run(["true"], check=True, **_owner(), extra_groups=[])  # noqa: S607
    except (KeyError, OSError, subprocess.SubprocessError) as error:
        return f"it does not run as root, which cannot become {SPARE_USER}: {error}"
    return None


def _owner() -> dict[str, Any]:
    user = pwd.getpwnam(SPARE_USER)
    return {"user": user.pw_name, "group": grp.getgrgid(user.pw_gid).gr_name}


def _has_ended(process: psutil.Process) -> bool:
    """Whether it is gone, or waits only for a parent that reads its exit code."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
