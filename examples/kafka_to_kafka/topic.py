"""The topic of payments, and the topic of totals that a stream of them must give."""

# Futures of confluent-kafka have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Iterator

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow.compute import call_function

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Messages
from laminar_core.jobs.payments import PAYMENT
from laminar_core.jobs.payments_data import PaymentsParameters

TOPIC = "payments"
OUTPUT = "totals"
PARTITIONS = 2
_BATCH_ROWS = 20_000
_WINDOW_US = 300_000_000
_SECONDS_MAX = 120


def parameters(rows: int) -> PaymentsParameters:
    """Return the payments of the demo: two hundred merchants, about five windows."""
    return PaymentsParameters(
        rows=rows,
        files=1,
        merchants=200,
        zipf_exponent=1.1,
        seed=1,
        start="2026-01-01T00:00:00Z",
        events_per_second=max(rows // 1500, 1),
        max_disorder_s=20,
    )


def payments(rows: int) -> pa.Table:
    """Return all payments as a table with the columns of a message."""
    batches = list(_batches(rows))
    return pa.Table.from_batches(batches, PAYMENT)


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    source = parameters(rows).source()
    for first in range(0, rows, _BATCH_ROWS):
        batch = source.batch(pa.array(range(first, min(first + _BATCH_ROWS, rows))).to_numpy())
        columns = [batch.column(field.name).cast(field.type) for field in PAYMENT]
        yield pa.RecordBatch.from_arrays(columns, schema=PAYMENT)


def create_topics(bootstrap: str) -> None:
    """Create the topic of payments and the topic of totals."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [NewTopic(topic, PARTITIONS, 1) for topic in (TOPIC, OUTPUT)]
    for created in admin.create_topics(new).values():
        created.result(_SECONDS_MAX)


def write_topic(
    bootstrap: str, table: pa.Table, progress: Callable[[int], None], topic: str = TOPIC
) -> None:
    """Write each payment as a message, keyed by its merchant."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    encoder = JsonFormat().encoder(PAYMENT)
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        keys = batch.column("merchant").to_pylist()
        for key, value in zip(keys, encoder.encode(batch).to_pylist(), strict=True):
            producer.produce(topic, value, key=key)
        producer.flush(_SECONDS_MAX)
        progress(batch.num_rows)


def totals(table: pa.Table) -> pa.Table:
    """Return what the stream of ``jobs/payments.py`` must write, computed by Arrow in one go."""
    times = table.column("paid_at").cast(pa.int64())
    start = call_function("multiply", [call_function("divide", [times, _WINDOW_US]), _WINDOW_US])
    grouped = (
        table.append_column("window_start", start)
        .group_by(["merchant", "window_start"])
        .aggregate([("amount_cents", how) for how in ("count", "sum", "min", "max", "mean")])
    )
    end = call_function("add", [grouped.column("window_start"), _WINDOW_US])
    time = PAYMENT.field("paid_at").type
    return pa.table(
        {
            "merchant": grouped.column("merchant"),
            "window_start": grouped.column("window_start").cast(time),
            "window_end": end.cast(time),
            "payments": grouped.column("amount_cents_count"),
            "total_cents": grouped.column("amount_cents_sum"),
            "min_cents": grouped.column("amount_cents_min"),
            "max_cents": grouped.column("amount_cents_max"),
            "average_cents": grouped.column("amount_cents_mean"),
        }
    )


def read_totals(bootstrap: str, topic: str = OUTPUT) -> pa.Table:
    """Return the committed messages of the topic of totals, as the rows that they were.

    Raises:
        RuntimeError: a message is no total.
    """
    values = pa.array([message.value() for message in _committed(bootstrap, topic)], pa.binary())
    schema = totals(payments(1)).schema
    places = pa.array(range(len(values)))
    decoded = JsonFormat().decoder(schema).decode(Messages(values, places))
    if decoded.letters.num_rows:
        raise RuntimeError(f"no total: {decoded.letters.to_pylist()[0]}")
    return pa.Table.from_batches([decoded.rows])


def _committed(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yield all messages as a consumer sees them that ignores what was aborted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ends = 0
    while ends < PARTITIONS:
        (message,) = consumer.consume(1, _SECONDS_MAX) or (None,)
        if message is None:
            raise RuntimeError(f"no end of {topic} within {_SECONDS_MAX} seconds")
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name has an underscore
            ends += 1
        else:
            raise RuntimeError(f"{topic}: {error.str()}")
    consumer.close()
