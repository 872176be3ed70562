"""A real schema registry: Apicurio, with Confluent's interface, on a free port of loopback.

``make servers`` gets its jars. Schemas are messages in topics of a Kafka broker, so registries of
the same broker have the same schemas, and a registry that was killed has lost none.
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self

from laminar_core.host.clock import SystemClock
from laminar_core.spark.jvm import ensure_java
from verification.servers.class_archives import archive_options
from verification.servers.kafka_broker import HOST, free_ports

START_SECONDS_MAX = 180
_PATH = "/apis/ccompat/v7"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_POLL_MS = 100
"""A registry waits so long for messages before it takes a topic as empty; its default is 5 s."""


class SchemaRegistryServer:
    """A registry that keeps its schemas in a broker. A context manager.

    Args:
        jars: the folder of jars that ``make servers`` fills.
        folder: where its log goes; made if it is not there.
        bootstrap: host and port of the broker.
        jvm_options: more options of its JVM; None: those that use the archive of its classes.
    """

    def __init__(
        self, jars: Path, folder: Path, bootstrap: str, jvm_options: Sequence[str] | None = None
    ) -> None:
        self._jars = jars.resolve()  # An archive belongs to one way of writing the path.
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "server.log"
        java_home = ensure_java()
        self._java = str(java_home / "bin" / "java")
        if jvm_options is None:
            jvm_options = archive_options("registry", java_home, self._jars)
        self._jvm_options = jvm_options

    @property
    def address(self) -> str:
        """The URL for clients."""
        return f"http://{HOST}:{self.port}{_PATH}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: it ended, or did not start in time; the message has the end of its log.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - its own words
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 1000 * START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or clock.monotonic_ms() > deadline_ms:
                self.kill()
                raise RuntimeError(f"the schema registry did not start: {self._end_of_log()}")
            clock.wait_ms(50)

    def kill(self) -> None:
        """End it as ``kill -9`` does; nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _command(self) -> list[str]:
        (program,) = self._jars.glob("*-runner.jar")
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self.port,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": self._bootstrap,
            "apicurio.kafkasql.consumer.poll.timeout": _POLL_MS,
        }
        given = [f"-D{name}={value}" for name, value in settings.items()]
        return [self._java, *_JVM, *self._jvm_options, *given, "-jar", str(program)]

    def _answers(self) -> bool:
        connection = HTTPConnection(HOST, self.port, timeout=10)
        try:
            with suppress(OSError, HTTPException):
                connection.request("GET", f"{_PATH}/subjects")
                return connection.getresponse().status == 200  # noqa: PLR2004 - HTTP
            return False
        finally:
            connection.close()

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def registry_jars(root: Path) -> Path | None:
    """Return the folder of jars that ``make servers`` filled below the project, or None."""
    found = sorted((root / "build" / "servers").glob("schema-registry-*/"))
    return found[-1] if found else None
