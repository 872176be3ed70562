"""Faults of hosts and links that hit a running stream; each ends when the stream is well again."""

from collections.abc import Callable
from enum import StrEnum

from verification.hosts.driver_events import Reaction
from verification.hosts.network import Network
from verification.hosts.spark_cluster import SparkCluster
from verification.hosts.stream import Stream
from verification.hosts.waiting import HostsError, wait_until

EXECUTOR = "CoarseGrainedExecutorBackend"
MASTER = "deploy.master.Master"


class FaultKind(StrEnum):
    """The kinds of faults."""

    SILENT_CUT = "silent-cut"
    """Two hosts with workers hear nothing of each other for some seconds."""
    RESET = "reset"
    """Their connections are reset while frames are under way."""
    DRIVER_CUT = "driver-cut"
    """The driver's host and one with a worker hear nothing of each other for some seconds."""
    DRIVER_RESET = "driver-reset"
    """Their connections are reset, Spark's own among them: it ends the executor then."""
    EXECUTOR_KILLED = "executor-killed"
    """The executors of one host die (SIGKILL)."""
    FROZEN_HOST = "frozen-host"
    """All processes of a host with a worker stand still, until the job has gone on without it."""
    POWER_CUT = "power-cut"
    """A host with a worker loses its power, and boots when the job has gone on without it."""
    DRIVER_HOST_LOST = "driver-host-lost"
    """The driver's host loses its power, and the job is started on another one."""
    MASTER_RESTARTED = "master-restarted"
    """Spark's master dies (SIGKILL), and is started again with what it had stored."""
    MASTER_REPLACED = "master-replaced"
    """Spark's master dies (SIGKILL), and another one knows nothing of the application."""


class Faults:
    """Hits one stream.

    Args:
        cluster: where its workers run.
        stream: the stream; it must run.
        drivers: hosts for drivers, which take turns.
    """

    def __init__(self, cluster: SparkCluster, stream: Stream, drivers: tuple[str, str]) -> None:
        self._cluster = cluster
        self._stream = stream
        self._drivers = drivers

    @property
    def _network(self) -> Network:
        return self._stream.network

    def hit(self, kind: FaultKind, victim: int = 0, seconds: float = 8) -> Reaction:
        """Carry out a fault and wait until the stream is well again, with exact rows so far.

        Args:
            kind: the fault.
            victim: the index of the worker whose host is hit.
            seconds: the duration of a cut.

        Raises:
            HostsError: the stream is not well again, rows are wrong or doubled, or there is no
                link between two workers to hit.
        """
        acts: dict[FaultKind, Callable[[], int]] = {
            FaultKind.SILENT_CUT: lambda: self._cut(self._workers(), seconds),
            FaultKind.RESET: lambda: self._reset(self._workers()),
            FaultKind.DRIVER_CUT: lambda: self._cut(self._driver_and(victim), seconds),
            FaultKind.DRIVER_RESET: lambda: self._reset(self._driver_and(victim)),
            FaultKind.EXECUTOR_KILLED: lambda: self._kill_executor(self._host_of(victim)),
            FaultKind.FROZEN_HOST: lambda: self._freeze(self._host_of(victim)),
            FaultKind.POWER_CUT: lambda: self._cut_power(self._host_of(victim)),
            FaultKind.DRIVER_HOST_LOST: self._lose_driver,
            FaultKind.MASTER_RESTARTED: lambda: self._start_master(knows_applications=True),
            FaultKind.MASTER_REPLACED: lambda: self._start_master(knows_applications=False),
        }
        since_ms = acts[kind]()
        found = self._stream.reaction(since_ms)
        self._stream.answer.check_so_far()
        return found

    def _host_of(self, worker: int) -> str:
        hosts = self._stream.worker_hosts
        return hosts[worker % len(hosts)]

    def possible(self, kind: FaultKind) -> FaultKind:
        """Return the fault, or the one of the driver's link if one host has all workers."""
        if len(set(self._stream.worker_hosts)) > 1:
            return kind
        of_driver = {
            FaultKind.SILENT_CUT: FaultKind.DRIVER_CUT,
            FaultKind.RESET: FaultKind.DRIVER_RESET,
        }
        return of_driver.get(kind, kind)

    def _workers(self) -> tuple[str, str]:
        one, *others = dict.fromkeys(self._stream.worker_hosts)
        if not others:
            raise HostsError(f"all workers are on {one}, so there is no link between two hosts")
        return one, others[0]

    def _driver_and(self, worker: int) -> tuple[str, str]:
        return self._stream.driver.host.name, self._host_of(worker)

    def _cut(self, pair: tuple[str, str], seconds: float) -> int:
        since_ms = self._stream.now_ms()
        self._network.cut(*pair)
        self._stream.pause(seconds)
        self._network.heal(*pair)
        self._well("a cut", self._stream.now_ms())
        return since_ms

    def _reset(self, pair: tuple[str, str]) -> int:
        """Without the cut before it, nothing might be under way at that moment."""
        since_ms = self._stream.now_ms()
        self._network.cut(*pair)
        self._stream.pause(1.5)
        closed = self._network.reset(*pair)
        self._network.heal(*pair)
        if not closed:
            raise HostsError(f"there is no connection between {' and '.join(pair)}")
        self._well("a reset", self._stream.now_ms())
        return since_ms

    def _kill_executor(self, host: str) -> int:
        since_ms = self._stream.now_ms()
        if not self._network[host].kill(EXECUTOR):
            raise HostsError(f"there is no executor on {host}")
        self._well("a lost executor", since_ms)
        return since_ms

    def _freeze(self, host: str) -> int:
        since_ms = self._stream.now_ms()
        self._network[host].freeze()
        try:
            self._well("a frozen host", since_ms)
        finally:
            self._network[host].thaw()
        return since_ms

    def _cut_power(self, host: str) -> int:
        since_ms = self._stream.now_ms()
        self._network.power_off(host)
        self._well("a host without power", since_ms)
        self._network.boot(host)
        self._cluster.join(host)
        return since_ms

    def _lose_driver(self) -> int:
        lost = self._stream.driver.host.name
        other = next(name for name in self._drivers if name != lost)
        since_ms = self._stream.now_ms()
        self._network.power_off(lost)
        self._stream.start(other, "--take-over")
        self._well("a lost driver", since_ms)
        self._network.boot(lost)
        return since_ms

    def _start_master(self, *, knows_applications: bool) -> int:
        since_ms = self._stream.now_ms()
        self._network[self._cluster.master].kill(MASTER)
        self._cluster.start_master(knows_applications=knows_applications)
        if knows_applications:
            self._cluster.wait_for_recovery()
        else:  # Workers that register again end their executors, some seconds later.
            driver = self._stream.driver
            wait_until("the end of the executors", lambda: self._has_failed(since_ms), driver.said)
        self._well("another master", self._stream.now_ms())
        return since_ms

    def _has_failed(self, since_ms: int) -> bool:
        return self._stream.driver.count("generation-failed", since_ms) > 0

    def _well(self, what: str, since_ms: int) -> None:
        """Wait until the stream goes on: restarts that only began after the fault are included."""
        self._stream.wait_for_rows(f"rows after {what}", since_ms)
