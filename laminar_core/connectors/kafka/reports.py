"""Collect the reports of a Kafka client: why it has no connection, and what brokers refuse.

A broker that refuses, or whose certificate is not trusted, looks like one that is silent: the
request times out. Only what the client reports meanwhile has the cause.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from laminar_core.connectors.kafka.bounded import LOOK_SECONDS
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.problems import (
    explained,
    is_denied,
    problem_of,
    reason_of,
)
from laminar_core.errors import ErrorCode, LaminarError, StorageUnavailable
from laminar_core.host.clock import Clock

_NO_CAUSE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - its public name has an underscore
        KafkaError._TIMED_OUT,  # noqa: SLF001
    }
)
"""Reports that only repeat the timeout."""


REFUSED_LOOKS = 10
"""How often a refusal is seen again, a tenth of a second apart, until it counts: another broker may
still answer, or a broker that has just started may not know its users yet."""

REFUSED_MS = 5_000
"""How long a reader is refused until that counts: time for two requests of another client."""

_USER = frozenset(
    {
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001
    }
)
"""Refusals of the user, whatever is asked for."""

T = TypeVar("T")


class ClientReports:
    """Reports of the clients of one sink or cluster, since the last request that succeeded."""

    def __init__(self, connection: KafkaConnection, name: str = "") -> None:
        self._connection = connection
        self._name = name
        """Name of the consumer group or the transactional id that the clients use."""
        self._denied: KafkaError | None = None
        self._last: KafkaError | None = None
        self._looks = 0

    def note(self, error: KafkaError) -> None:
        """Remember a report; it is the callback ``error_cb`` of a client."""
        if is_denied(error):
            self._denied = error
        elif error.code() not in _NO_CAUSE:
            self._last = error

    def listen_to(self, consumer: Consumer) -> None:
        """Remember what a consumer reports as an event; its other events are of no interest."""
        while (event := consumer.poll(0)) is not None:
            if (error := event.error()) is not None:
                self.note(error)

    def clear(self) -> None:
        """Forget all reports: a request has succeeded."""
        self._denied = self._last = None
        self._looks = 0

    @property
    def is_refused(self) -> bool:
        """Whether the cluster refused a request since the last one that succeeded."""
        return self._denied is not None

    def refusal(self, listen: Callable[[], object]) -> KafkaException | None:
        """Let the client report; return what the cluster refuses, once it has stood for a while.

        So a request need not wait until its time is over. ``listen`` makes the client report.
        """
        listen()
        if self._denied is None:
            return None
        self._looks += 1
        return KafkaException(self._denied) if self._looks >= REFUSED_LOOKS else None

    def result_of(self, answer: "Future[T]", listen: Callable[[], object]) -> T:
        """Return the result of a request, as soon as it is there.

        Raises:
            KafkaException: the request failed, or the cluster refuses it.
        """
        while True:
            try:
                return answer.result(LOOK_SECONDS)
            except TimeoutError:
                if (refused := self.refusal(listen)) is not None:
                    raise refused from None

    def with_cause(self, error: StorageUnavailable, doing: str) -> LaminarError:
        """Return the error with the cause that was reported, or as it is if none was."""
        if self._denied is not None:
            return problem_of(self._denied, doing, self._connection, self._name)
        if self._last is None:
            return error
        cause = reason_of(self._last, self._connection)
        return StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, f"{error}; {cause}")

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Raise what a client raises inside as an error of Laminar, with the reported cause.

        Raises:
            ConfigurationError: rights, topic or settings.
            FencedError: another producer has the transactional id.
            StorageUnavailable: anything else; mostly, no broker answers.
        """
        try:
            with explained(doing, self._connection, self._name):
                yield
        except StorageUnavailable as error:
            raise self.with_cause(error, doing) from error.__cause__
        self.clear()


class ReaderRefusal:
    """A refusal that a reader's client has reported, once it has stood for a while.

    A reader waits for brokers that are away, so it must not end because one of them, which has just
    started, does not know its users yet.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._denied: KafkaError | None = None
        self._first_ms = self._last_ms = 0.0

    def note(self, error: KafkaError) -> None:
        """Remember a report; it is the callback ``error_cb`` of the client."""
        if is_denied(error):
            self._last_ms = self._clock.monotonic_ms()
            if self._denied is None or self._denied.code() != error.code():
                self._first_ms = self._last_ms
            self._denied = error

    def accepted(self, asked_ms: float) -> None:
        """Note that the leaders of all partitions answered a request begun at this time.

        Another client of this user made it. Messages prove less: they are of one broker, and
        another one may refuse the user for good.
        """
        is_newer = asked_ms > self._last_ms
        if is_newer and self._denied is not None and self._denied.code() in _USER:
            self._denied = None

    def standing(self) -> KafkaError | None:
        """Return the refusal that counts; None: there is none."""
        now_ms = self._clock.monotonic_ms()
        return self._denied if now_ms - self._first_ms >= REFUSED_MS else None
