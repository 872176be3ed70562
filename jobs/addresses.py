"""Where the example jobs read and write: a path, or a topic as ``kafka://HOST:PORT/TOPIC``."""

from urllib.parse import SplitResult, urlsplit

import pyarrow as pa

from laminar_core.connectors import KafkaSink, KafkaSource, ParquetSink, ParquetSource, Sink, Source


def source_at(address: str, schema: pa.Schema, rows_per_second: float | None = None) -> Source:
    """Return the source of Parquet files at a path, or of the messages of a topic.

    ``schema``: the columns of a message, which is an object of JSON. A topic ends at the messages
    that are there at the start if ``?until=latest`` is behind the address, else never.
    """
    # A paced source reads twenty small batches a second, so that its pace is even.
    batch_rows = 131_072 if rows_per_second is None else max(int(rows_per_second) // 20, 1)
    parts = urlsplit(address)
    if not _is_topic(parts):
        return ParquetSource(address, batch_rows=batch_rows)
    return KafkaSource(
        parts.netloc,
        parts.path.strip("/"),
        schema,
        until="latest" if parts.query == "until=latest" else None,
        batch_messages=min(batch_rows, 10_000),
    )


def sink_at(address: str, key: str) -> Sink:
    """Return the sink of Parquet files at a path, or of JSON to a topic with this key column."""
    parts = urlsplit(address)
    if not _is_topic(parts):
        return ParquetSink(address)
    return KafkaSink(parts.netloc, parts.path.strip("/"), key=key)


def part_of(address: str, name: str) -> str:
    """Return the folder ``name`` at a path, or the topic whose name has ``-name`` behind it."""
    parts = urlsplit(address)
    if not _is_topic(parts):
        return f"{address.rstrip('/')}/{name}"
    return parts._replace(path=f"{parts.path.rstrip('/')}-{name}").geturl()


def _is_topic(parts: SplitResult) -> bool:
    return parts.scheme == "kafka"
