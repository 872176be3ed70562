"""The command line, a driver and Spark's workers: each opens the bucket by its URI alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.pipeline import Pipeline

def pipeline():
    p = Pipeline("few-rows")
    source = DatagenSource({"n": Sequence()}, rows=2_000, batch_rows=100)
    p.source("in", source).sink("out", CollectSink())
    return p
"""


def laminar(directory: Path, store: str, *words: str) -> str:
    """Standard output of a command that works."""
    environment = {**os.environ, "LAMINAR_STORE": store, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "laminar_core.cli", *words]
    answer = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.large
@pytest.mark.spark
def test_a_job_in_spark_keeps_its_checkpoints_in_a_bucket(s3_server, tmp_path):
    (tmp_path / "few_rows.py").write_text(PROGRAM)
    store = s3_server.uri()
    once = ("--checkpoint-interval", "1 hour")
    said = laminar(tmp_path, store, "run", "few_rows.py", "--json", *once)
    events = [json.loads(line) for line in said.splitlines()]
    (finished,) = [event for event in events if event["event"] == "finished"]
    assert (finished["rows_in"], finished["checkpoints"]) == (2_000, 1)
    (report,) = json.loads(laminar(tmp_path, store, "checkpoints", "verify", "--json"))
    assert report["ok"]
    assert len(report["parts"]) == 4
