"""Broker, workers and driver are killed, and the output is exact: the demo, with fewer rows."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.early, pytest.mark.large]

ROOT = Path(__file__).parents[3]


@pytest.mark.spark
def test_the_demo_is_exact_through_all_its_kills(kafka_jars: Path, tmp_path: Path) -> None:
    del kafka_jars
    options = ["--rows", "90000", "--rows-per-second", "6000", "--folder", str(tmp_path / "demo")]
    done = subprocess.run(
        [sys.executable, "-m", "examples.kafka_to_kafka", *options],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "killed: worker, broker, driver, worker" in done.stdout
    assert "exactly the totals" in done.stdout
