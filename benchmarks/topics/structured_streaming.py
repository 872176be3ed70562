"""Structured Streaming with the window of ``jobs/payments.py``, in PySpark of ``make peers``.

    python structured_streaming.py HOST:PORT FOLDER JARS MESSAGES_PER_BATCH

It imports nothing of Laminar, because it runs with another PySpark. Its batches follow each other
without a pause, and each is a checkpoint. Its sink of Kafka gives no exactly once, and it keeps the
last window, which its watermark does not close.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions

WORKERS = 2
_PAYMENT = "merchant STRING, amount_cents BIGINT, paid_at TIMESTAMP"


def session(jars: str) -> SparkSession:
    """Open a session on as many cores as Laminar has workers."""
    paths = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    settings = {
        "spark.jars": paths,
        "spark.sql.shuffle.partitions": str(WORKERS),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{WORKERS}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def totals(payments: DataFrame) -> DataFrame:
    """Return the totals per merchant and window as messages."""
    amount = functions.col("amount_cents")
    parsed = functions.from_json(functions.col("value").cast("string"), _PAYMENT)
    found = (
        payments.select(parsed.alias("payment"))
        .select("payment.*")
        .withWatermark("paid_at", "1 minute")
        .groupBy("merchant", functions.window("paid_at", "5 minutes").alias("w"))
        .agg(
            functions.count("*").alias("payments"),
            functions.sum(amount).alias("total_cents"),
            functions.min(amount).alias("min_cents"),
            functions.max(amount).alias("max_cents"),
            functions.avg(amount).alias("average_cents"),
        )
        .withColumn("window_start", functions.col("w.start"))
        .withColumn("window_end", functions.col("w.end"))
        .drop("w")
    )
    key = functions.col("merchant").alias("key")
    return found.select(key, functions.to_json(functions.struct("*")).alias("value"))


def main(bootstrap: str, folder: str, jars: str, messages_per_batch: str) -> None:
    """Run the query for each line of the input, a pair of topics, up to the last message."""
    spark = session(jars)
    for line in sys.stdin:
        source, target = line.split()
        payments = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", messages_per_batch)
            .load()
        )
        query = (
            totals(payments)
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("checkpointLocation", f"{folder}/{target}")
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        print("done", flush=True)  # noqa: T201 - its output
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
