"""The facts that each task reports about its host, as JSON, and the request for them."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from laminar_core.link.transport import CoordinatorAddress


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PathFacts(_Facts):
    """A path of a source or sink, as one host sees it."""

    path: str
    digest: str | None = None
    """Digest of the names and sizes below it; None: it is not there, or cannot be listed."""
    missing: tuple[str, ...] = ()
    """Hosts that wrote a token there which this host does not see; sinks only."""
    problem: str = ""


class LinkFacts(_Facts):
    """One direction of a connection between two tasks, as the receiver saw it."""

    sender: int
    size_bytes: int
    """Received in time; 0: nothing arrived."""
    bytes_per_s: float | None
    """From the moment at which all begin to send; None: nothing arrived."""


class JointFacts(_Facts):
    """The results that need all tasks, and Laminar on all hosts."""

    open_files: int
    """This process may have so many; the soft limit, raised as far as it is allowed."""
    memory_bytes: int
    """The limit of the container, or the memory of the machine."""
    store_missing: tuple[str, ...] = ()
    """Hosts that wrote a token into the store which this host does not see."""
    store_problem: str = ""
    paths: tuple[PathFacts, ...] = ()
    network_problem: str = ""
    driver_reached: bool = False
    clock_ahead_ms: float | None = None
    """How far the clock of this host is ahead of the driver's."""
    links: tuple[LinkFacts, ...] = ()


class HostFacts(_Facts):
    """The report of one task; a host may have several tasks."""

    task: int
    host: str
    python: str
    versions: dict[str, str | None]
    """By distribution; None: it is not installed."""
    problem: str = ""
    """Why Laminar cannot be imported here; empty: it can."""
    joint: JointFacts | None = None
    """None: some host has no Laminar, so nothing was tried together."""

    @property
    def name(self) -> str:
        """Host and task, for people."""
        return f"{self.host} (task {self.task})"


@dataclass(frozen=True, slots=True)
class Request:
    """The orders for each task; sent with it."""

    run_id: str
    """Part of the names of all tokens."""
    tasks: int
    address: CoordinatorAddress
    store_uri: str | None = None
    source_paths: tuple[str, ...] = ()
    sink_paths: tuple[str, ...] = ()
