"""Real sockets and a wire that is cut: a connection that breaks is noticed, and healed."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.threads import ThreadCluster
from laminar_core.driver.events import GenerationFailed, JobEvent
from laminar_core.driver.options import JobOptions, JobResult
from laminar_core.driver.restart import FixedDelay
from laminar_core.driver.supervisor import Supervisor
from laminar_core.host.clock import SystemClock
from laminar_core.link import sockets
from laminar_core.link.addresses import TransportKind
from laminar_core.link.messages import Peer
from laminar_core.link.unix_sockets import NearEndpoint, private_directory
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.jobs import Job, payments, rows_of, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from tests.link.proxy import Proxy
from tests.link.test_transport import Cluster, frames
from tests.link.waiting import until

networks = pytest.mark.parametrize("kind", ["curve", "tcp"])

CARRIED_BYTES, SWALLOWED_BYTES = 60_000, 12_000
"""Bytes that pass before the wire is cut, and bytes that are lost then: less than credit allows."""


class Cut:
    """Carries some bytes, loses the next ones, resets the connection, and carries all after it."""

    def __init__(self) -> None:
        self.carried = self.swallowed = 0
        self.done = False
        self.proxy: Proxy | None = None

    def __call__(self, length: int) -> bool | None:
        if self.done or self.carried < CARRIED_BYTES:
            self.carried += length
            return False
        self.swallowed += length
        self.done = self.swallowed >= SWALLOWED_BYTES
        return None if self.done else True


def dealt_out() -> Job:
    """Rows that nearly all cross between the workers."""
    tables = payments(2, 6_000)
    p = Pipeline("dealt-out")
    rows = p.source("in", MemorySource(tables, batch_rows=200)).rebalance()
    return with_ledgers(p, {"out": (rows.map(lambda batch: batch, name="same"), rows_of(tables))})


class OneWay:
    """Carries some bytes, and then nothing more in this direction on the first connection."""

    def __init__(self) -> None:
        self.carried = 0
        self.proxy: Proxy | None = None

    @property
    def done(self) -> bool:
        return self.proxy is not None and self.proxy.accepted > 1

    def __call__(self, length: int) -> bool:
        self.carried += length
        return self.carried > CARRIED_BYTES and not self.done


@networks
@pytest.mark.parametrize("cut", [Cut, OneWay])
def test_frames_that_are_lost_on_a_connection_are_sent_again(
    cut, kind, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(sockets, "HEARTBEAT_INTERVAL_MS", 200)
    monkeypatch.setattr(sockets, "HEARTBEAT_TIMEOUT_MS", 600)
    job, wire, events = dealt_out(), cut(), list[JobEvent]()
    with ExitStack() as stack:

        def announce(worker: int, endpoint: str) -> str:
            if worker == 0:
                return endpoint
            wire.proxy = proxy = Proxy(endpoint, wire)
            stack.callback(proxy.close)
            return proxy.endpoint

        result = run(ThreadCluster(kind, announce), job, tmp_path, events)
    assert wire.done
    job.check(result.rows_late)
    assert (result.outcome, result.generations) == ("finished", 1)
    assert not any(isinstance(event, GenerationFailed) for event in events)


def test_frames_that_are_lost_on_a_unix_socket_are_sent_again(tmp_path) -> None:
    """Between workers of one host no network breaks, but the links mend all the same."""
    job, wire, events = dealt_out(), Cut(), list[JobEvent]()
    with ExitStack() as stack:

        def through_the_wire(worker: int, near: NearEndpoint | None) -> NearEndpoint | None:
            if worker == 0 or near is None:
                return near
            folder = stack.enter_context(private_directory())
            proof = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            proof.bind(f"{folder}/{near.proof}")
            wire.proxy = proxy = Proxy(near.endpoint, wire, f"{folder}/data")
            stack.callback(proxy.close)
            return NearEndpoint(directory=str(folder), proof=near.proof)

        result = run(ThreadCluster("curve", announce_near=through_the_wire), job, tmp_path, events)
    assert wire.done
    job.check(result.rows_late)
    assert (result.outcome, result.generations) == ("finished", 1)


def run(cluster: ThreadCluster, job: Job, store: Path, events: list[JobEvent]) -> JobResult:
    options = JobOptions(
        job="dealt-out",
        store_uri=str(store),
        parallelism=2,
        checkpoint=CoordinatorConfig(interval_ms=50),
        restart=FixedDelay(3),
    )
    opened = CheckpointStore.open(str(store), "dealt-out")
    return Supervisor(cluster, job.plan, options, opened, SystemClock(), events.append).run()


@contextmanager
def pair(kind: TransportKind) -> Iterator[tuple[Cluster, Proxy]]:
    """Two workers; the first reaches the second through a proxy."""
    with ExitStack() as stack:
        c = Cluster(stack, kind, 0)
        c.workers = [c.worker(0), c.worker(1)]
        proxy = Proxy(c.workers[1].endpoint)
        stack.callback(proxy.close)
        there = [Peer(endpoint=w.endpoint, public_key=w.public_key) for w in c.workers]
        c.workers[1].connect_peers(there)
        there[1] = Peer(endpoint=proxy.endpoint, public_key=there[1].public_key)
        c.workers[0].connect_peers(there)
        yield c, proxy


@networks
def test_a_connection_that_breaks_while_nothing_is_under_way_is_made_again(kind) -> None:
    with pair(kind) as (c, proxy):
        c.workers[0].send(1, b"h", b"before")
        assert frames(c.workers[1]) == [(b"h", b"before")]
        first = c.workers[1].connections()
        assert (first.established, first.open) == (1, 1)
        proxy.reset()
        assert until(lambda: c.workers[1].connections().established == 2)
        c.workers[0].send(1, b"h", b"after")
        assert frames(c.workers[1]) == [(b"h", b"after")]
        assert c.workers[1].connections().closed >= 1


@networks
def test_a_link_that_is_silent_is_closed(monkeypatch, kind: TransportKind) -> None:
    """The connection ends without a notice: a cable is pulled, a firewall forgets the flow."""
    monkeypatch.setattr(sockets, "HEARTBEAT_INTERVAL_MS", 50)
    monkeypatch.setattr(sockets, "HEARTBEAT_TIMEOUT_MS", 200)
    with pair(kind) as (c, proxy):
        c.workers[0].send(1, b"h", b"before")
        assert frames(c.workers[1]) == [(b"h", b"before")]
        proxy._swallow = lambda _: True
        assert until(lambda: c.workers[1].connections().closed >= 1)
