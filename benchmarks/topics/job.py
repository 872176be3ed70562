"""Laminar: ``jobs/payments.py`` on Spark, two workers, a checkpoint every second.

python -m benchmarks.topics.job HOST:PORT FOLDER
"""

import sys

from benchmarks.topics.system import DONE
from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.spark.session import open_session

WORKERS = 2


def main(bootstrap: str, folder: str) -> None:
    """Run the job for each line of the input, a pair of topics."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    address = f"kafka://{bootstrap}"
    for line in sys.stdin:
        source, target = line.split()
        job = pipeline(f"{address}/{source}?until=latest", f"{address}/{target}")
        checkpoint = CheckpointConfig(f"{folder}/{target}", interval="1 second")
        run = RunConfig(workers=WORKERS)
        job.run(spark, checkpoint=checkpoint, run=run, progress=False)
        print(DONE, flush=True)  # noqa: T201 - its output
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
