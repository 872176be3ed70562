"""A job in Spark, a process of its own, is watched by Prometheus, a collector and `laminar top`."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.collector import collecting
from tests.spark.jobs_under_test import ROOT, Driver, SmallJob

pytestmark = pytest.mark.spark


def scrape(log: Path) -> dict[tuple[str, str], float]:
    """Return the values by name and operator; the log of the driver says where."""
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+/metrics", log.read_text())
    with urllib.request.urlopen(url, timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["laminar_job"] for sample in samples} == {"payments"}
    return {(s.name, s.labels.get("operator", "")): s.value for s in samples}


@pytest.mark.large
def test_a_running_job_is_seen_from_outside(tmp_path: Path) -> None:
    job, log = SmallJob(tmp_path).write_input(), tmp_path / "log"
    with collecting() as collector:
        options = ("--prometheus-port", "0", "--otlp-endpoint", collector.url)
        command = job.command(*options, "--otlp-interval", "1s", rows_per_second=5_000)
        with Driver(command, log) as driver:
            events = driver.events()
            before = next(e for e in events if "operators" in e and e["event"] == "progress")
            next(e for e in events if e["event"] == "checkpoint-completed")
            after = next(
                e
                for e in events
                if e["event"] == "progress"
                and all(n["busy_share"] is not None for n in e["operators"].values())
                and e["rows_in"] > before["rows_in"]
            )
            seen = scrape(log)
            top = subprocess.run(
                [*(sys.executable, "-m", "laminar_core.cli", "top", "--store", job.store)],
                cwd=ROOT, capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            driver.process.terminate()
            assert [e["event"] for e in events][-1] == "finished"
            assert driver.process.wait() == 0
    assert seen["laminar_job_running", ""] == 1
    assert seen["laminar_rows_read_total", ""] >= after["rows_in"]
    source, numbers = next(iter(after["operators"].items()))
    assert seen["laminar_operator_rows_out_total", source] >= numbers["rows_out"] > 0
    assert sum(numbers["busy_ms"] for numbers in after["operators"].values()) > 0
    assert seen["laminar_checkpoint_duration_seconds_count", ""] >= 1
    assert top.startswith("job payments, generation 1, last sign of life ")
    assert all(operator in top for operator in after["operators"])
    assert "newest checkpoint" in top
    assert len(collector.requests) > 1
    (running,) = collector.metrics()["laminar.job.running"].gauge.data_points
    assert running.as_double == 0  # It was sent last, when the job had ended.
