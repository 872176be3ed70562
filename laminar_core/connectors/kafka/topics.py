"""Whether a cluster has a topic that can be written; asked before a job starts."""

from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.errors import ConfigurationError, ErrorCode


def require_topic(connection: KafkaConnection, topic: str) -> None:
    """Return if the topic is there, and the user may do with it what a sink does.

    A sink also reads the topic: brokers ask for that right where the marker is set, because the
    marker is an offset of a consumer group.

    Raises:
        ConfigurationError: it is not, or the cluster refuses the credentials.
        StorageUnavailable: no broker answered.
    """
    with Cluster(connection) as cluster:
        found = cluster.topics([topic], ("read", "write"))
    if topic not in found:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_TOPIC,
            f"Kafka at {connection.bootstrap} has no topic {topic}: create it, or correct the name",
        )
