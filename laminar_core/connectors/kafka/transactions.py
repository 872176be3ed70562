"""Ask a transaction's coordinator about it, and end it, whichever process has begun it.

The client that produces cannot do that: librdkafka ends only the transactions of its own producer.
The brokers need no more than transactional id, producer id and epoch (KIP-98, KIP-664), so another
client sends these requests: kafka-python. Its public methods list transactions. Those that it has
for describing fail as a whole if one id is unknown, and it has none that ends a transaction, so
these two requests go through its connections.
"""

import importlib
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self, cast

from laminar_core.connectors.kafka.admin_settings import admin_settings
from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.problems import remedy_of
from laminar_core.errors import ConfigurationError, ErrorCode, FencedError, StorageUnavailable
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.host.extras import needs_extra

REQUEST_MS_MAX = 20_000
_END_VERSION_MAX = 4
"""From version 5 on ending a transaction also raises the epoch, for a producer that goes on."""
_NOT_FOUND = 105
"""TRANSACTIONAL_ID_NOT_FOUND."""
_FENCING = frozenset({47, 49, 90})
"""INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
_ENDED_OTHERWISE = 48
"""INVALID_TXN_STATE."""
_SOON = frozenset({14, 15, 16, 51})
"""Coordinator loading, not available, moved; or the transaction is being ended right now."""
_MOMENT_MS = 200
_PATIENCE = 50
_CAUSE_SECONDS_MAX = 2
"""Time to find out why no broker was found."""
_ACCESS = ("Authorization", "Authentication")


class TransactionState(Enum):
    """The states of a transaction that Laminar distinguishes."""

    ONGOING = "ongoing"
    COMMITTED = "committed"
    """The decision is durable, whether or not all partitions show it."""
    ABORTED = "aborted"
    NONE = "none"
    """The id is there, and nothing was sent under it since a producer took it."""


_STATES = {
    "Ongoing": TransactionState.ONGOING,
    "PrepareCommit": TransactionState.COMMITTED,
    "CompleteCommit": TransactionState.COMMITTED,
    "PrepareAbort": TransactionState.ABORTED,
    "CompleteAbort": TransactionState.ABORTED,
    "PrepareEpochFence": TransactionState.ABORTED,
    "Dead": TransactionState.ABORTED,
    "Empty": TransactionState.NONE,
}


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """The newest transaction of one transactional id."""

    state: TransactionState
    producer_id: int
    epoch: int
    expires_at_ms: int | None
    """Wall-clock time of the broker, in milliseconds since 1970; None: it is not ongoing."""


class Transactions:
    """Asks the coordinators of transactions. Each call waits ``REQUEST_MS_MAX`` at most."""

    def __init__(self, connection: KafkaConnection, clock: Clock | None = None) -> None:
        self._connection = connection
        self._clock = clock or SystemClock()
        with needs_extra("kafka-transaction", "Kafka sinks with delivery='transaction'"):
            self._admin = importlib.import_module("kafka.admin")
            self._errors = importlib.import_module("kafka.errors")
            self._admin_requests = importlib.import_module("kafka.protocol.admin.transactions")
            self._requests = importlib.import_module("kafka.protocol.producer.transaction")
        self._client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def describe(self, ids: Iterable[str]) -> dict[str, TransactionFacts]:
        """Return the facts of each transactional id; those that no broker knows are left out.

        Raises:
            ConfigurationError: an id may not be described.
            StorageUnavailable: a coordinator did not answer.
        """
        asked = sorted(set(ids))
        if not asked:
            return {}

        async def ask(client: Any) -> list[Any]:  # noqa: ANN401 - the library has no types
            found: list[Any] = []
            for node, names in (await _coordinators(client, asked)).items():
                request = self._admin_requests.DescribeTransactionsRequest(transactional_ids=names)
                answer = await client._manager.send(request, node_id=node)  # noqa: SLF001 - see the module
                found += answer.transaction_states
            return found

        doing = "describing transactions"
        facts: dict[str, TransactionFacts] = {}
        for each in self._patiently(
            doing, ask, lambda found: next((e.error_code for e in found if e.error_code), 0)
        ):
            if each.error_code == _NOT_FOUND:
                continue
            self._require_none(each.error_code, f"{doing}: {each.transactional_id}")
            facts[each.transactional_id] = self._facts(each, doing)
        return facts

    def listed(self, matches: Callable[[str], bool]) -> dict[str, TransactionState]:
        """Return the transactional ids that match, of all brokers, with their states.

        Raises:
            ConfigurationError: they may not be listed.
            StorageUnavailable: a broker did not answer.
        """

        async def ask(client: Any) -> list[Any]:  # noqa: ANN401
            by_broker = await client._async_list_transactions()  # noqa: SLF001
            return [each for found in by_broker.values() for each in found]

        doing = "listing transactions"
        found = [each for each in self._ask(doing, ask) if matches(each.transactional_id)]
        return {e.transactional_id: self._state(str(e.state.value), doing) for e in found}

    def commit(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Commit a transaction; repeating it is harmless.

        Raises:
            FencedError: it was aborted, or a later transaction has its id.
            ConfigurationError: the rights do not suffice.
            StorageUnavailable: it may or may not have happened.
        """

        async def ask(client: Any) -> int:  # noqa: ANN401
            (node,) = await _coordinators(client, [transactional_id])
            request = self._requests.EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=True,
                max_version=_END_VERSION_MAX,
            )
            return (await client._manager.send(request, node_id=node)).error_code  # noqa: SLF001

        doing = f"committing transaction {transactional_id}"
        code = self._patiently(doing, ask, int)
        if code in _FENCING or code in (_ENDED_OTHERWISE, _NOT_FOUND):
            why = f"{doing}: {self._name(code)}: it was aborted, or another one has its id"
            raise FencedError(ErrorCode.FENCED, f"{self._at}, {why}")
        self._require_none(code, doing)

    # --- answers --------------------------------------------------------------------------------

    @property
    def _at(self) -> str:
        return f"Kafka at {self._connection.bootstrap}"

    def _facts(self, told: Any, doing: str) -> TransactionFacts:  # noqa: ANN401
        state = self._state(told.transaction_state, doing)
        expires = told.transaction_start_time_ms + told.transaction_timeout_ms
        is_ongoing = state is TransactionState.ONGOING and told.transaction_start_time_ms >= 0
        return TransactionFacts(
            state, told.producer_id, told.producer_epoch, expires if is_ongoing else None
        )

    def _state(self, told: str, doing: str) -> TransactionState:
        if told not in _STATES:
            raise StorageUnavailable(
                ErrorCode.BROKER_UNAVAILABLE,
                f"{self._at}, {doing}: a transaction is in the state {told[:40]!r}, which Laminar "
                "does not know",
            )
        return _STATES[told]

    def _name(self, code: int) -> str:
        return str(self._errors.for_code(code).message or code)

    def _require_none(self, code: int, doing: str) -> None:
        if code:
            self.close()  # It may know the wrong coordinator.
            raise self._problem(self._errors.for_code(code)(), doing)

    # --- requests -------------------------------------------------------------------------------

    def _patiently(
        self,
        doing: str,
        ask: Callable[[Any], Coroutine[Any, Any, Any]],
        code_of: Callable[[Any], int],
    ) -> Any:  # noqa: ANN401
        """Ask again while the coordinator is not ready, for ten seconds; return the last answer."""
        answer = self._ask(doing, ask)
        for _ in range(_PATIENCE):
            if code_of(answer) not in _SOON:
                break
            self.close()  # It may have moved.
            self._clock.wait_ms(_MOMENT_MS)
            answer = self._ask(doing, ask)
        return answer

    def _ask(self, doing: str, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401
        try:
            if self._client is None:
                self._client = self._connected()
            client = self._client
            return client._manager.run(ask, client)  # noqa: SLF001
        except (self._errors.KafkaError, OSError, ValueError, KeyError, IndexError) as error:
            # An answer that cannot be read is one of the last three.
            self.close()
            raise self._problem(error, doing) from error

    def _connected(self) -> Any:  # noqa: ANN401
        """Return a client that has found a broker.

        Its constructor searches, in a thread that goes on if none is found. Its error does not say
        why none was found, so the other client is asked.
        """
        kind = self._admin.KafkaAdminClient
        client = kind.__new__(kind)
        try:
            client.__init__(
                **admin_settings(self._connection),
                request_timeout_ms=REQUEST_MS_MAX,
                bootstrap_timeout_ms=REQUEST_MS_MAX,
            )
        except self._errors.KafkaError:
            if hasattr(client, "_net"):
                client._closed = False  # noqa: SLF001 - see the module
                client.close()
            with Cluster(self._connection) as cluster:
                cluster.require_reachable(_CAUSE_SECONDS_MAX)
            raise
        return client

    def _problem(self, error: Exception, doing: str) -> ConfigurationError | StorageUnavailable:
        kind = type(error).__name__
        text = re.sub(r"\s+", " ", self._connection.without_secrets(str(error)))[:500]
        why = f"{self._at}, {doing}: {kind}: {text}"
        if any(word in kind for word in _ACCESS):
            return ConfigurationError(
                ErrorCode.BROKER_ACCESS_DENIED, f"{why}: {remedy_of(getattr(error, 'errno', -1))}"
            )
        if kind in ("UnsupportedVersionError", "IncompatibleBrokerVersion"):
            return ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{why}: the brokers are older than Kafka 3.0: use delivery='staged'",
            )
        return StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, why)


async def _coordinators(client: Any, ids: Sequence[str]) -> Mapping[Any, list[str]]:  # noqa: ANN401
    """Return the transactional ids by their coordinator."""
    kinds = importlib.import_module("kafka.protocol.metadata").CoordinatorType
    found = await client._find_coordinator_ids(ids, key_type=kinds.TRANSACTION)  # noqa: SLF001
    nodes: dict[Any, list[str]] = {}
    for name, node in cast("Mapping[str, Any]", found).items():
        nodes.setdefault(node, []).append(name)
    return nodes
