"""A standalone Spark cluster over hosts: its own master and workers, as pip installs them."""

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

from laminar_core.spark.jvm import ensure_java
from verification.hosts.network import Network
from verification.hosts.waiting import wait_until

PORT = 7077
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
_SPARK_HOME = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
RECOVERY = "/tmp/spark-recovery"  # noqa: S108 - a host's own
"""Where the master keeps applications, so that it knows them when it is started again."""
_RECOVERS = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={RECOVERY}"
ROOT = Path(__file__).parents[2]
LOST_HOST_SECONDS = 6
"""Without a sign of a host for so long, the master takes it for lost (by default 60 s)."""


def shared_folders() -> list[Path]:
    """Return the folders that programs of Spark and Laminar need on every host."""
    return [ROOT, ensure_java()]


class SparkCluster:
    """The master on one host, workers on others; each offers cores that nothing measures.

    Args:
        network: the hosts.
        master: the host of the master.
        cores: what each worker offers.
    """

    def __init__(self, network: Network, master: str, *, cores: int = 2) -> None:
        self._network = network
        self.master = master
        self._cores = cores
        self._logs = network.folder / "spark"
        self._logs.mkdir(exist_ok=True)
        self._begun = 0

    @property
    def url(self) -> str:
        """The address of the master for drivers."""
        return f"spark://{self._network[self.master].address}:{PORT}"

    def start(self, *hosts: str) -> None:
        """Start the master and workers on these hosts, and wait until all have registered."""
        self.start_master()
        self.join(*hosts)

    def start_master(self, *, knows_applications: bool = True) -> None:
        """Start the master, and wait until workers can register.

        If it does not know the applications of its predecessor, it has no recovery.
        """
        if not knows_applications:
            self._network[self.master].run("rm", "-rf", RECOVERY)
        self._begun = self._size_of_log(self.master)
        address = self._network[self.master].address
        own = ["--host", address, "--port", str(PORT), "--webui-port", "8080"]
        self._start(self.master, _MASTER, *own)
        wait_until(
            "Spark's master",
            lambda: "I have been elected leader" in self._log_of(self.master)[self._begun :],
            lambda: self._log_of(self.master)[-1000:],
        )

    def wait_for_recovery(self) -> None:
        """Wait until a master that was started again has its applications and workers back."""
        wait_until(
            "the recovery of Spark's master",
            lambda: "Recovery complete" in self._log_of(self.master)[self._begun :],
            lambda: self._log_of(self.master)[-1000:],
        )

    def join(self, *hosts: str) -> None:
        """Start workers on hosts, and wait until the master has them."""
        begun = {name: self._size_of_log(name) for name in hosts}
        for name in hosts:
            address = self._network[name].address
            own = ["--host", address, "--cores", str(self._cores), "--memory", "4g"]
            folder = f"/tmp/spark-{name}"  # noqa: S108 - a host's own
            self._start(name, _WORKER, *own, "--work-dir", folder, self.url)
        for name, began in begun.items():
            wait_until(
                f"Spark's worker on {name}",
                lambda n=name, b=began: "Successfully registered" in self._log_of(n)[b:],
                lambda n=name: self._log_of(n)[-1000:],
            )

    def _start(self, name: str, role: str, *words: str) -> None:
        host = self._network[name]
        recovers = _RECOVERS if role == _MASTER else ""
        environment = environment_of(host.address, f"{_SMALL_JVM} {recovers}")
        command = [str(_SPARK_HOME / "bin" / "spark-class"), role, *words]
        host.start(*command, log=self._logs / f"{name}.log", environment=environment)

    def _log_of(self, name: str) -> str:
        try:
            return (self._logs / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _size_of_log(self, name: str) -> int:
        return len(self._log_of(name))


def environment_of(address: str, jvm_options: str = "") -> Mapping[str, str]:
    """Return the environment of a Spark program on the host with this address."""
    return {
        **os.environ,
        "JAVA_HOME": str(ensure_java()),
        "PYTHONDONTWRITEBYTECODE": "1",  # They run as root, in a checkout of another user.
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": address,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{jvm_options} -Dspark.worker.timeout={LOST_HOST_SECONDS}",
        "SPARK_NO_DAEMONIZE": "1",
    }
