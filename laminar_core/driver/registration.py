"""The workers that have registered, and when they begin.

A registration is checked before anything of it is sent to others. ``protocol/greetings.py`` decides
when all workers are known to reach each other.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.events import UnreachablePair
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.addresses import is_loopback
from laminar_core.link.messages import GreetingsMissing, Peer, Register
from laminar_core.link.sockets import SPARE_DESCRIPTORS
from laminar_core.link.transport import worker_connections
from laminar_core.link.versions import own_versions, require_same
from laminar_core.protocol.greetings import (
    EndUnreachable,
    GreetingEffect,
    GreetingEvent,
    Greetings,
    Registered,
    Reported,
    TimePassed,
    step,
)
from laminar_core.store.claims import not_shared

PAIRS_MAX = 64
"""Largest number of pairs listed in the event; it has the number of all."""
PAIRS_IN_A_LINE = 3


class Registration:
    """The registrations of one generation."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._parts = parts
        self._workers: dict[int, Register] = {}
        self._greetings = Greetings(parts.identity.parallelism, parts.deadlines.connect_ms)

    @property
    def workers(self) -> Mapping[int, Register]:
        """The registrations so far, by worker."""
        return self._workers

    @property
    def everybody_registered(self) -> bool:
        """Whether all workers have registered."""
        return len(self._workers) == self._parts.identity.parallelism

    @property
    def in_order(self) -> list[Register]:
        """The registrations of all workers."""
        return [self._workers[n] for n in range(len(self._workers))]

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The addresses of all workers."""
        return tuple(
            Peer(endpoint=w.endpoint, public_key=w.public_key, near=w.near, host=w.host)
            for w in self.in_order
        )

    def register(self, message: Register, now_ms: float) -> tuple[GreetingEffect, ...]:
        """Take a registration; return what to do now.

        Raises:
            ConfigurationError: the worker does not fit the driver, or others cannot reach it.
        """
        self._check(message)
        self._workers[message.worker] = message
        if self.everybody_registered:
            refuse_loopback(self.in_order)
        return self._step(Registered(message.worker, now_ms))

    def greeted(self, message: GreetingsMissing) -> tuple[GreetingEffect, ...]:
        """Take a report of greetings; return what to do now."""
        return self._step(Reported(message.worker, frozenset(message.senders)))

    def tick(self, now_ms: float) -> tuple[GreetingEffect, ...]:
        """Return what to do now."""
        return self._step(TimePassed(now_ms))

    def _step(self, event: GreetingEvent) -> tuple[GreetingEffect, ...]:
        self._greetings, effects = step(self._greetings, event)
        return effects

    def _check(self, message: Register) -> None:
        identity, driver = self._parts.identity, own_versions()
        require_same(driver, message.versions, message.host)
        if message.claim_sha256 != self._parts.claim_sha256:
            raise not_shared(self._parts.store.objects.uri, identity.generation, message.host)
        needed = worker_connections(identity.parallelism) + SPARE_DESCRIPTORS
        most = message.open_files_max
        if message.endpoint.startswith("tcp:") and most is not None and most < needed:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"a process on host {message.host} may have {most} open files and needs about "
                f"{needed} for its connections: raise the limit there (ulimit -n), or run with "
                "fewer workers",
            )

    def unreachable(self, late: EndUnreachable) -> tuple[UnreachablePair, ...]:
        """Describe the first of the pairs whose greeting did not arrive."""
        return tuple(
            UnreachablePair(
                sender=sender,
                sender_host=self._workers[sender].host,
                receiver=receiver,
                receiver_host=self._workers[receiver].host,
                address=self._workers[receiver].endpoint,
            )
            for sender, receiver in late.pairs[:PAIRS_MAX]
        )


def unreachable_line(pairs: tuple[UnreachablePair, ...], count: int, waited_ms: float) -> str:
    """Put unreachable pairs in a line; ``count`` is the number of all."""
    named = [
        f"worker {p.sender} on {p.sender_host} to worker {p.receiver} on {p.receiver_host} at "
        f"{p.address}"
        for p in pairs[:PAIRS_IN_A_LINE]
    ]
    more = f"; and {count - len(named)} more pairs" if count > len(named) else ""
    return (
        f"within {waited_ms / 1000:.0f} s no connection from {'; '.join(named)}{more}: let the "
        "hosts reach each other at these addresses (--bind-address, --ports), or wait longer "
        "(--connect-timeout)"
    )


def refuse_loopback(workers: list[Register]) -> None:
    """Verify that no worker names an address that means another host on each host.

    Raises:
        ConfigurationError: one does, and not all workers are on one host (LOOPBACK_ADDRESS).
    """
    loopback = [worker for worker in workers if _is_loopback_endpoint(worker.endpoint)]
    one_host = len(loopback) == len(workers) and len({worker.host for worker in workers}) == 1
    if loopback and not one_host:
        first = loopback[0]
        raise ConfigurationError(
            ErrorCode.LOOPBACK_ADDRESS,
            f"worker {first.worker} on {first.host} listens at {first.endpoint}, which other hosts "
            f"cannot reach: the name {first.host} is a loopback address on its own host. Mend "
            "/etc/hosts there, set SPARK_LOCAL_IP, or name the network (--bind-address 10.0.0.0/8)",
        )


def _is_loopback_endpoint(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    return parts.scheme == "tcp" and parts.hostname is not None and is_loopback(parts.hostname)
