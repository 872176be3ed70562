"""Ask the brokers about topics: identities, partitions, and the range of offsets."""

# confluent-kafka does not say what its futures hold.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Literal, Self

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # pyright: ignore[reportPrivateImportUsage] - documented

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.facts import Bounds, Place, TopicFacts
from laminar_core.connectors.kafka.problems import explained
from laminar_core.connectors.kafka.reports import ClientReports
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError, StorageUnavailable
from laminar_core.host.clock import Clock, SystemClock

TopicRight = Literal["read", "write"]

REQUEST_SECONDS_MAX = 20
_ATTEMPT_WEIGHTS = (1, 1, 1, 2, 2, 3, 4, 6)
"""How that time is divided into attempts, each with a client of its own. With KRaft, each answer of
a broker may name another one as the controller, and a client may wait for one that no later answer
names. With two brokers, one of them behind another listener, 46 of 200 clients did, and the others
had their answer within 0.1 s. Later attempts are longer, for brokers that are slow."""
_MOMENT_MS = 100
_IS_NOT_THERE_YET = frozenset(
    {
        KafkaError._NOENT,  # noqa: SLF001 - its public name has an underscore
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
_PATIENCE = 50
"""A partition that was just added has no leader for a moment."""


class Cluster:
    """Asks the brokers. Each call waits for an answer, ``REQUEST_SECONDS_MAX`` at most."""

    def __init__(self, connection: KafkaConnection, clock: Clock | None = None) -> None:
        self._connection = connection
        self._clock = clock or SystemClock()
        self._reports = ClientReports(connection)
        self._admin = self._client()

    def _client(self) -> AdminClient:
        settings: dict[str, Any] = {"log_level": 0, **self._connection.client_settings()}
        settings["error_cb"] = self._reports.note
        with explained("opening a client", self._connection):
            return AdminClient(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.poll(0)

    def topics(
        self, names: Collection[str], rights: Collection[TopicRight] = ()
    ) -> dict[str, TopicFacts]:
        """Return the topics that are there; others are left out.

        Raises:
            ConfigurationError: they may not be described, or one of ``rights`` is missing.
            StorageUnavailable: no broker answered.
        """
        *earlier, last = _attempt_seconds()
        for seconds in earlier:
            try:
                return self._topics(names, rights, seconds)
            except StorageUnavailable:
                self._admin = self._client()
        return self._topics(names, rights, last)

    def _topics(
        self, names: Collection[str], rights: Collection[TopicRight], seconds: float
    ) -> dict[str, TopicFacts]:
        doing = f"describing {', '.join(names)}"
        asked = self._admin.describe_topics(
            TopicCollection(list(names)),
            include_authorized_operations=bool(rights),
            request_timeout=seconds,
        )
        found: dict[str, TopicFacts] = {}
        for name, answer in asked.items():
            described = self._answer(answer, doing, absent=True)
            if described is not None:
                self._require_rights(name, described.authorized_operations, rights)
                partitions = tuple(sorted(part.id for part in described.partitions))
                found[name] = TopicFacts(str(described.topic_id), partitions)
        return found

    def _require_rights(
        self, topic: str, given: Collection[Any] | None, rights: Collection[TopicRight]
    ) -> None:
        if not given:  # Brokers that do not say what is allowed say so when it is done.
            return
        names = {operation.name.lower() for operation in given}
        if missing := [right for right in rights if right not in names]:
            raise ConfigurationError(
                ErrorCode.BROKER_ACCESS_DENIED,
                f"Kafka at {self._connection.bootstrap}: the right to {' and to '.join(missing)} "
                f"topic {topic} is missing: allow this user to {' and '.join(rights)} it",
            )

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        """Return the range of offsets of each partition; each must exist."""
        asked = list(places)
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()
        assert earliest is not None
        assert latest is not None
        low = self._offsets(dict.fromkeys(asked, earliest))
        ends = dict.fromkeys(asked, latest)
        stable = self._offsets(ends, IsolationLevel.READ_COMMITTED)
        end = self._offsets(ends)
        return {place: Bounds(low[place], stable[place], end[place]) for place in asked}

    def offsets_at(self, places: Iterable[Place], time_ms: int) -> dict[Place, int | None]:
        """Return the first offset at or after a time, in milliseconds since 1970; None: none is."""
        spec = OffsetSpec.for_timestamp(time_ms)
        found = self._offsets(dict.fromkeys(places, spec))
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def require_reachable(self, seconds: float) -> None:
        """Return if a broker takes these credentials.

        Raises:
            ConfigurationError: it refuses them.
            StorageUnavailable: no broker answered; the message says why, if the client knows.
        """
        doing = "connecting"
        try:
            with explained(doing, self._connection):
                self._admin.list_topics(timeout=seconds)
        except StorageUnavailable as error:
            self._admin.poll(0)
            raise self._reports.with_cause(error, doing) from error.__cause__

    def broker_setting(self, name: str) -> str | None:
        """Return a setting of one broker; None: these credentials may not see it, or it has none.

        Raises:
            StorageUnavailable: no broker answered.
        """
        with explained("asking for brokers", self._connection):
            found = self._admin.list_topics(timeout=REQUEST_SECONDS_MAX)
        broker = ConfigResource(ConfigResource.Type.BROKER, str(min(found.brokers)))
        asked = self._admin.describe_configs([broker], request_timeout=REQUEST_SECONDS_MAX)
        try:
            settings = self._answer(asked[broker], f"reading {name}", absent=False)
        except ConfigurationError:
            return None  # It takes the right to describe the cluster, which a sink need not have.
        return settings[name].value if name in settings else None

    def retention_ms(self, topics: Collection[str]) -> dict[str, int]:
        """Return how long messages are kept; topics that keep them for ever are left out.

        So are those with a setting that these credentials may not see.

        Raises:
            StorageUnavailable: no broker answered.
        """
        if not topics:  # The client refuses to ask for nothing.
            return {}
        named = {topic: ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics}
        asked = self._admin.describe_configs(
            list(named.values()), request_timeout=REQUEST_SECONDS_MAX
        )
        kept: dict[str, int] = {}
        for topic, resource in named.items():
            try:
                settings = self._answer(asked[resource], f"reading {topic}", absent=True)
            except ConfigurationError:
                continue
            if settings is None or "delete" not in settings["cleanup.policy"].value:
                continue
            time_ms = int(settings["retention.ms"].value)
            if time_ms >= 0:
                kept[topic] = time_ms
        return kept

    def _offsets(
        self,
        specs: Mapping[Place, OffsetSpec],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for _ in range(_PATIENCE):
            left = {TopicPartition(*p): spec for p, spec in specs.items() if p not in found}
            if not left:
                break
            asked = self._admin.list_offsets(
                left, isolation_level=isolation, request_timeout=REQUEST_SECONDS_MAX
            )
            for part, answer in asked.items():
                result = self._answer(answer, f"offsets of {part.topic}", absent=True)
                if result is not None:
                    found[part.topic, part.partition] = result.offset
            if len(found) < len(specs):
                self._refresh({topic for topic, _ in specs})
        missing = sorted(specs.keys() - found.keys())
        if missing:
            topic, partition = missing[0]
            raise StorageUnavailable(
                ErrorCode.BROKER_UNAVAILABLE,
                f"Kafka at {self._connection.bootstrap}: partition {partition} of {topic} has no "
                "leader that answers: look at its brokers",
            )
        return found

    def _refresh(self, topics: Iterable[str]) -> None:
        self._clock.wait_ms(_MOMENT_MS)
        with explained("asking for metadata", self._connection):
            for topic in topics:
                self._admin.list_topics(topic, timeout=REQUEST_SECONDS_MAX)

    def _answer(self, answer: "Future[Any]", doing: str, *, absent: bool) -> Any:  # noqa: ANN401
        """Return the result, or None if the subject is not there and ``absent`` allows that."""
        try:
            with explained(doing, self._connection):
                return self._reports.result_of(answer, lambda: self._admin.poll(0))
        except StorageUnavailable as error:
            cause = error.__cause__
            if absent and cause is not None and _is_not_there(cause.args[0]):
                return None
            self._admin.poll(0)
            raise self._reports.with_cause(error, doing) from cause
        except LaminarError as error:
            if absent and error.code is ErrorCode.NO_SUCH_TOPIC:
                return None
            raise


def _attempt_seconds() -> list[float]:
    return [REQUEST_SECONDS_MAX * each / sum(_ATTEMPT_WEIGHTS) for each in _ATTEMPT_WEIGHTS]


def _is_not_there(error: KafkaError) -> bool:
    return error.code() in _IS_NOT_THERE_YET
