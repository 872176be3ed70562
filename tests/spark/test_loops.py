"""A loop in real Spark tasks, one of which is killed while rows go round."""

import re
import sys
from pathlib import Path
from queue import SimpleQueue

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.driver.events import JobEvent
from laminar_core.jobs.loop import pipeline
from laminar_core.jobs.loop_data import in_order, settlements
from laminar_core.jobs.payments_data import write_payments
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.jobs_under_test import Driver, kill_after_checkpoint

pytestmark = pytest.mark.spark

ROWS = 60_000
DOCUMENT = Path(__file__).parents[2] / "docs" / "pipelines.md"


@pytest.fixture
def payments(tmp_path: Path) -> Path:
    write_payments(tmp_path / "in", rows=ROWS, files=4, merchants=200, events_per_second=100)
    return tmp_path / "in"


def test_a_killed_worker_leaves_the_output_of_a_loop_exact(
    spark: SparkSession, payments: Path, tmp_path: Path
) -> None:
    output, store = str(tmp_path / "out"), str(tmp_path / "store")
    events: SimpleQueue[JobEvent] = SimpleQueue()
    running = pipeline(str(payments), output, rows_per_second=30_000).start(
        spark,
        checkpoint=CheckpointConfig(store, interval="100 milliseconds"),
        run=RunConfig(workers=2),
        listener=events.put,
    )
    kill_after_checkpoint(events, number=3)
    result = running.result(timeout_s=120)

    assert (result.outcome, result.generations) == ("finished", 2)
    assert in_order(read_committed(output)).equals(answer(payments))
    opened = CheckpointStore.open(store, "loop")
    manifests = [opened.manifests.read(n) for n in opened.manifests.ids()]
    logged = [e for m in manifests for e in m.inflight_data if e.edge.feedback]
    assert logged, "no checkpoint met a row on its way back"


def answer(payments: Path):
    return in_order(settlements(pq.read_table(payments)))


@pytest.mark.large
def test_the_command_of_the_documentation_runs_the_loop(payments: Path, tmp_path: Path) -> None:
    words = [
        *("--set", f"input={payments}", "--set", f"output={tmp_path / 'out'}"),
        *("--store", str(tmp_path / "store"), "--checkpoint-interval", "1 second"),
    ]
    command = [sys.executable, "-m", "laminar_core.cli", "run", "jobs/loop.py", "--json", *words]
    with Driver(command, tmp_path / "driver.log") as driver:
        assert driver.wait_for("finished")["outcome"] == "finished"
        assert driver.process.wait() == 0
    assert in_order(read_committed(str(tmp_path / "out"))).equals(answer(payments))


@pytest.mark.usefixtures("spark")
def test_the_loop_of_the_documentation_runs_verbatim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    section = DOCUMENT.read_text().partition("## Loops\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "loop of the documentation", "exec"), {})
    assert capsys.readouterr().out.split() == ["finished", "10000", "10000"]
