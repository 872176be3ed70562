"""Compare the life of a transaction with the settings of a job, before the job starts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.transactions import Transactions
from laminar_core.connectors.outlook import Promise
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.units import duration_text

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.sink import KafkaSink

_LIMIT = "transaction.max.timeout.ms"


def check_outage(sink: "KafkaSink", promise: Promise) -> Sequence[str]:
    """Return one line for people that says how long the job may be down.

    Raises:
        ConfigurationError: a transaction cannot live for an interval and the longest outage, or the
            brokers do not allow it to (INVALID_OPTION); the cluster refuses to be asked.
        MissingExtraError: the extra ``kafka-transaction`` is not installed.
        StorageUnavailable: no broker answered.
    """
    outage_ms = outage_ms_of(sink.topic, sink.transaction_timeout_ms, promise)
    with Transactions(sink.cluster) as transactions:
        transactions.listed(lambda _: False)  # With these credentials, which needs no right.
    with Cluster(sink.cluster) as cluster:
        limit = cluster.broker_setting(_LIMIT)
    if limit is not None and int(limit) < sink.transaction_timeout_ms:
        raise _invalid(
            f"transaction_timeout of the sink for topic {sink.topic} is "
            f"{duration_text(sink.transaction_timeout_ms)}, and the brokers allow "
            f"{duration_text(int(limit))}: raise their {_LIMIT}, or lower it"
        )
    if promise.interval_ms is None:
        line = (
            f"topic {sink.topic}: nothing triggers checkpoints, and a transaction that is open for "
            f"longer than {duration_text(sink.transaction_timeout_ms)} is lost"
        )
    else:
        line = (
            f"topic {sink.topic}: the job may be down for {duration_text(outage_ms)}, less the "
            "time that a checkpoint takes; after that, output of its last checkpoint is lost"
        )
    return (line,)


def outage_ms_of(topic: str, timeout_ms: int, promise: Promise) -> int:
    """Return how much of a transaction's life an interval leaves, for a checkpoint and an outage.

    Raises:
        ConfigurationError: not enough (INVALID_OPTION).
    """
    interval_ms, outage_ms = promise.interval_ms or 0, promise.longest_outage_ms
    life = f"transaction_timeout of the sink for topic {topic} is {duration_text(timeout_ms)}"
    remedy = f"raise it, and {_LIMIT} of the brokers, or use delivery='staged', which loses nothing"
    if timeout_ms <= interval_ms:
        interval = duration_text(interval_ms)
        raise _invalid(f"{life}, and checkpoints are {interval} apart: {remedy}")
    needed_ms = interval_ms + promise.timeout_ms + (outage_ms or 0)
    if outage_ms is not None and timeout_ms < needed_ms:
        raise _invalid(
            f"{life}, and --checkpoint-interval ({duration_text(interval_ms)}), "
            f"--checkpoint-timeout ({duration_text(promise.timeout_ms)}) and --longest-outage "
            f"({duration_text(outage_ms)}) take {duration_text(needed_ms)} together: {remedy}"
        )
    return timeout_ms - interval_ms


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
