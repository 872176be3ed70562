"""Apache Kafka: the connection that a source and a sink share, the source, and the sink.

The client, confluent-kafka, is imported when something is opened, not before: a pipeline can be
described on a machine that does not have it.
"""

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.kafka.source import KafkaSource

__all__ = ["KafkaConnection", "KafkaSink", "KafkaSource"]
