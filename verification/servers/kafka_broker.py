"""A real Kafka broker: one process that is broker and controller, on free ports of loopback.

``make servers`` gets its jars. The settings are those of one node that is small and quick: few
internal partitions, retention that acts at once, and only topics that were created.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from laminar_core.host.clock import SystemClock
from laminar_core.spark.jvm import ensure_java
from verification.servers.certificates import make_certificates
from verification.servers.class_archives import archive_options, formatted_store
from verification.servers.secured_listener import secured_settings

HOST = "127.0.0.1"
START_SECONDS_MAX = 180
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_JVM = (
    "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
_SETTINGS = """\
process.roles={roles}
node.id={node}
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{broker}{more_listeners}
advertised.listeners=PLAINTEXT://{host}:{broker}{more_advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT,SECURED:SASL_SSL
controller.listener.names=CONTROLLER
log.dirs={folder}/log
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
"""


class KafkaBroker:
    """A broker whose data are in ``folder``; started again there, it has them still.

    Args:
        jars: the folder of jars that ``make servers`` fills.
        folder: where settings, logs and data go; made if it is not there.
        proxy_port: a port of loopback where a proxy carries connections to ``proxied_port``.
            Clients that bootstrap there are sent there for everything.
        settings: more lines of ``server.properties``.
        beside: the first broker of a cluster, if this one is its second, without a controller.
        secured: whether it has one more listener, with TLS, passwords and rights.
        jvm_options: more options of its JVM; None: those that use the archive of its classes.
    """

    def __init__(  # noqa: PLR0913 - a configuration, by keyword
        self,
        jars: Path,
        folder: Path,
        proxy_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        beside: Self | None = None,
        secured: bool = False,
        jvm_options: Sequence[str] | None = None,
    ) -> None:
        self._jars = jars.resolve()  # An archive belongs to one way of writing the path.
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        java_home = ensure_java()
        self._java = str(java_home / "bin" / "java")
        self._tool_options = archive_options("kafka", java_home, self._jars)
        self._jvm_options = self._tool_options if jvm_options is None else jvm_options
        self._is_first = beside is None
        self._port, controller, self.proxied_port, secured_port = free_ports(4)
        self.controller_port = controller if beside is None else beside.controller_port
        folder.mkdir(parents=True, exist_ok=True)
        listeners, advertised = f",CONTROLLER://{HOST}:{controller}", ""
        roles, node = "broker,controller", 1
        if beside is not None:
            listeners, roles, node = "", "broker", 2
        more = dict(settings or {})
        if proxy_port is not None:
            listeners += f",PROXIED://{HOST}:{self.proxied_port}"
            advertised += f",PROXIED://{HOST}:{proxy_port}"
        if secured:
            listener = f",SECURED://{HOST}:{secured_port}"
            listeners += listener
            advertised += listener
            certificates = make_certificates(self._java, folder / "certificates", HOST)
            more = secured_settings(certificates) | more
        self.secured_bootstrap = f"{HOST}:{secured_port}"
        text = _SETTINGS.format(
            host=HOST, broker=self._port, controller=self.controller_port, folder=folder,
            roles=roles, node=node, more_listeners=listeners, more_advertised=advertised,
        )  # fmt: skip
        self._settings = folder / "server.properties"
        self._settings.write_text(text + "".join(f"{k}={v}\n" for k, v in more.items()))

    @property
    def bootstrap(self) -> str:
        """Host and port for clients."""
        return f"{HOST}:{self._port}"

    @property
    def address(self) -> str:
        """The bootstrap address, by the name that every server has for its own."""
        return self.bootstrap

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, with the data that are there, and wait until it takes connections.

        Raises:
            RuntimeError: it ended, or did not start in time; the message has the end of its log.
        """
        self.format()
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - its own words
                self._command("kafka.Kafka", str(self._settings), options=self._jvm_options),
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 1000 * START_SECONDS_MAX
        while not _listens(self._port):
            if self._process.poll() is not None or clock.monotonic_ms() > deadline_ms:
                self.kill()
                raise RuntimeError(f"the broker did not start: {self._end_of_log()}")
            clock.wait_ms(50)

    @property
    def store(self) -> Path:
        """The folder with its data."""
        return self._folder / "log"

    def format(self) -> None:
        """Make its store, if there is none: a JVM does it, or it is copied."""
        if self.store.exists():
            return
        if self._is_first and formatted_store(self._jars).is_dir():
            shutil.copytree(formatted_store(self._jars), self.store)
            return
        settings = str(self._settings)
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", settings)

    def kill(self) -> None:
        """End it as ``kill -9`` does; nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen broker go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def fill_disk(self) -> None:
        """Let none of its files grow, as on a full disk (Linux only). It ends at its next write."""
        assert self._process is not None
        limit = ["prlimit", "--fsize=1:", "--pid", str(self._process.pid)]
        subprocess.run(limit, check=True)  # noqa: S603 - its own words

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait(START_SECONDS_MAX)
        self._process = None

    def limit_client(self, client_id: str, limits: Mapping[str, int]) -> None:
        """Throttle clients of this name: ``producer_byte_rate``, ``consumer_byte_rate`` and so on.

        Raises:
            RuntimeError: the broker did not accept the limits.
        """
        to_add = ",".join(f"{name}={limit}" for name, limit in limits.items())
        self._run(
            "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter",
            "--entity-type", "clients", "--entity-name", client_id, "--add-config", to_add,
        )  # fmt: skip

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def _command(self, main: str, *words: str, options: Sequence[str] = ()) -> list[str]:
        classpath = ":".join(map(str, sorted(self._jars.glob("*.jar"))))
        return [self._java, *_JVM, *options, "-cp", classpath, main, *words]

    def _run(self, main: str, *words: str) -> None:
        done = subprocess.run(  # noqa: S603 - its own words
            self._command(main, *words, options=self._tool_options),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{main} failed: {(done.stderr or done.stdout)[-2000:]}")

    def _end_of_log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")[-2000:]


class SecuredKafkaBroker(KafkaBroker):
    """A broker whose ``address`` is two: without TLS, and with TLS, passwords and rights."""

    def __init__(self, jars: Path, folder: Path) -> None:
        super().__init__(jars, folder, secured=True)

    @property
    def address(self) -> str:
        """Both bootstrap addresses, with a space between them."""
        return f"{self.bootstrap} {self.secured_bootstrap}"


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()


def jars_of(root: Path) -> Path | None:
    """Return the folder of jars that ``make servers`` filled below the project, or None."""
    given = os.environ.get("LAMINAR_KAFKA_JARS")
    found = [Path(given)] if given else sorted((root / "build" / "servers").glob("kafka-*/"))
    return found[-1] if found else None


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False
