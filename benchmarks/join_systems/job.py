"""Laminar: the joins as a job on Spark, two workers, a checkpoint every second.

python -m benchmarks.join_systems.job FOLDER
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.join_systems.question import (
    LEFT,
    RIGHT,
    WIDTH_MS,
    WINDOW_MS,
    Question,
    Total,
    write_totals,
)
from benchmarks.topics.system import DONE
from laminar_core.connectors import ParquetSink, ParquetSource
from laminar_core.operators import agg, windows
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig
from laminar_core.spark.session import open_session

WORKERS = 2


def pipeline(question: Question, output: str) -> Pipeline:
    """Join both sides, and sum the pairs up by kind and minute."""
    p = Pipeline("joins")
    left = p.source("left", ParquetSource(question.path(LEFT))).watermark("ordered_at")
    right = p.source("right", ParquetSource(question.path(RIGHT))).watermark("priced_at")
    if question.join == "interval":
        within = ("0 seconds", f"{WIDTH_MS} milliseconds")
        pairs = left.join(right, on="key", within=within, name="pairs")
    else:
        pairs = left.as_of(right, on="key", how="inner", name="pairs")
    totals = (
        pairs.key_by("kind")
        .window(windows.tumbling(f"{WINDOW_MS} milliseconds"), time="ordered_at")
        .aggregate("totals", agg.count(), agg.sum("amount"), agg.sum("price"))
    )
    totals.sink("out", ParquetSink(output))
    return p


def written(output: str) -> list[Total]:
    """Return the totals that a job has written."""
    rows = pq.read_table(output)
    minutes = rows.column("window_start").cast(pa.timestamp("ms")).cast(pa.int64())
    others = [rows.column(name) for name in ("count", "sum_amount", "sum_price")]
    columns = [rows.column("kind"), minutes, *others]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def main(folder: str) -> None:
    """Run a job for the question in each line of the input."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    for number, line in enumerate(sys.stdin):
        question = Question.of(line)
        place = Path(folder) / str(number)
        output = str(place / "output")
        checkpoint = CheckpointConfig(str(place / "store"), interval="1 second")
        run = RunConfig(workers=WORKERS)
        pipeline(question, output).run(spark, checkpoint=checkpoint, run=run, progress=False)
        write_totals(question.output, written(output))
        print(DONE, flush=True)  # noqa: T201 - its output
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
