"""Laminar: ``jobs/payments.py`` on Spark, with a checkpoint every second.

    python -m benchmarks.payments_systems.job FOLDER WORKERS [unverified]

WORKERS is the highest number of workers that a question asks for. With ``unverified`` the checksums
of pages are not computed.
"""

import sys
from pathlib import Path

from benchmarks.payments_systems.generated import source_of
from benchmarks.payments_systems.question import Question
from benchmarks.topics.system import DONE
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.jobs.payments import totals_per_merchant
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.spark.session import open_session


def main(folder: str, workers: str, *, verify_pages: bool) -> None:
    """Run the job for the question in each line of the input."""
    spark = open_session(f"local[{workers}]", "benchmark")
    for number, line in enumerate(sys.stdin):
        question = Question.of(line)
        store = Path(folder) / f"store-{number}"
        checkpoint = CheckpointConfig(str(store), interval="1 second")
        run = RunConfig(workers=question.workers)
        job = pipeline(question, verify_pages=verify_pages)
        job.run(spark, checkpoint=checkpoint, run=run, progress=False)
        print(DONE, flush=True)  # noqa: T201 - its output
    spark.stop()


def pipeline(question: Question, *, verify_pages: bool) -> Pipeline:
    """Return the job over the files of a question, or over rows that it generates."""
    job = Pipeline("payments")
    if (generated := source_of(Path(question.rows))) is not None:
        rows = job.source("payments", generated).watermark("paid_at")
    else:
        files = ParquetSource(question.rows, verify_pages=verify_pages)
        rows = job.source("payments", files).watermark("paid_at", max_delay="1 minute")
    return totals_per_merchant(rows).sink("totals", ParquetSink(question.output))


if __name__ == "__main__":
    _, folder, workers, *options = sys.argv
    main(folder, workers, verify_pages="unverified" not in options)
