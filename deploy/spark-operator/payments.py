"""A stream as a program for spark-submit, which has started Spark when this begins."""

from pyspark.sql import SparkSession

from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig

pipeline("kafka://kafka:9092/payments", "kafka://kafka:9092/totals").run(
    SparkSession.builder.getOrCreate(),
    checkpoint=CheckpointConfig(store="s3://checkpoints/prod?region=eu-central-1"),
    run=RunConfig(workers=2, job="payments", require_encryption=True),
)
