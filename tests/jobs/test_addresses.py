"""Addresses of the example jobs: paths and topics."""

import pyarrow as pa
import pytest

from laminar_core.connectors import KafkaSink, KafkaSource, ParquetSink, ParquetSource
from laminar_core.jobs.addresses import part_of, sink_at, source_at

MESSAGE = pa.schema([("merchant", pa.string())])
TOPIC = "kafka://localhost:9092/payments"


def test_a_path_is_read_and_written_as_parquet() -> None:
    assert source_at("build/in", MESSAGE) == ParquetSource("build/in", batch_rows=131_072)
    assert sink_at("build/out", "merchant") == ParquetSink("build/out")


@pytest.mark.parametrize(("query", "until"), [("", None), ("?until=latest", "latest")])
def test_a_topic_is_read_to_its_end_only_if_its_address_says_so(
    query: str, until: str | None
) -> None:
    expected = KafkaSource(
        "localhost:9092", "payments", MESSAGE, until=until, batch_messages=10_000
    )
    assert source_at(TOPIC + query, MESSAGE) == expected
    assert sink_at(TOPIC, "merchant") == KafkaSink("localhost:9092", "payments", key="merchant")


@pytest.mark.parametrize(("rows_per_second", "batch_rows"), [(40_000, 2_000), (3, 1)])
def test_a_paced_source_reads_twenty_batches_a_second(
    rows_per_second: float, batch_rows: int
) -> None:
    paced = source_at("build/in", MESSAGE, rows_per_second)
    assert paced == ParquetSource("build/in", batch_rows=batch_rows)


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("build/market", "build/market/trades"),
        ("build/market/", "build/market/trades"),
        ("s3://bucket/market", "s3://bucket/market/trades"),
        ("kafka://localhost:9092/market", "kafka://localhost:9092/market-trades"),
        (
            "kafka://localhost:9092/market?until=latest",
            "kafka://localhost:9092/market-trades?until=latest",
        ),
    ],
)
def test_parts_are_folders_or_topics(address: str, part: str) -> None:
    assert part_of(address, "trades") == part
