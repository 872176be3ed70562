"""``laminar recover --dry-run`` says everything and changes nothing, not even a name on a disk."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.world import ProcessKilledError

PROGRAM = """
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.pipeline import Pipeline

def pipeline(keep: str = "n"):
    p = Pipeline("simulated")
    rows = p.source("in", ParquetSource({input!r}, batch_rows=5)).rebalance()
    p = rows.select(keep, name="keep").sink("out", ParquetSink({output!r}))
    return p

def renamed():
    p = Pipeline("simulated")
    return p.source("other", ParquetSource({input!r})).sink("out", ParquetSink({output!r}))
"""


def files(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, and what is in the files; Python's cache does not count."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


@pytest.fixture
def place(own_imports: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, and its job as a driver left it that was killed after three checkpoints."""
    del own_imports
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for number in range(2):
        rows = pa.table({"n": range(1_000 * number, 1_000 * number + 400)})
        pq.write_table(rows, tmp_path / "in" / f"{number}.parquet")
    where = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    (tmp_path / "job.py").write_text(PROGRAM.format(**where))
    p = Pipeline("simulated")
    source = ParquetSource(where["input"], batch_rows=5)
    read = p.source("in", source, rows_per_second=500).rebalance()
    p = read.select("n", name="keep").sink("out", ParquetSink(where["output"]))
    simulation = Simulation(
        p.plan(),
        checkpoint=CoordinatorConfig(interval_ms=10),
        objects=LocalObjectStore(str(tmp_path / "store")),
    )
    simulation.when(CheckpointCompleted, simulation.kill_driver, 3)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return tmp_path


def store_of(place: Path) -> CheckpointStore:
    return CheckpointStore.open(str(place / "store"), JOB)


def dry_run(cli, place: Path, *words: object, target: str = "job.py"):
    """Ask; whatever the answer is, nothing has changed."""
    before = files(place)
    answer = cli("recover", target, "--dry-run", "--store", place / "store", *words)
    assert files(place) == before
    assert "Traceback" not in answer.err
    return answer


def test_it_says_what_would_be_continued_and_changes_nothing(cli, place: Path) -> None:
    newest = store_of(place).manifests.ids()[-1]
    answer = dry_run(cli, place)
    assert answer.code == 0
    assert f"job simulated would continue from checkpoint {newest}" in answer.out
    said = json.loads(dry_run(cli, place, "--json").out)
    assert (said["verdict"], said["checkpoint"]["checkpoint_id"]) == ("restore", newest)
    assert said["problems"] == []


def test_a_chosen_one_and_one_before_a_time(cli, place: Path) -> None:
    said = json.loads(dry_run(cli, place, "--json", "--restore", 1).out)
    assert said["checkpoint"]["checkpoint_id"] == 1
    assert said["committed_beyond_ids"]
    answer = dry_run(cli, place, "--restore-before", "2001-01-01T00:00:00Z")
    assert answer.code == 2
    assert "no checkpoint was completed before that time (2001-01-01" in answer.out
    said = json.loads(dry_run(cli, place, "--json", "--before", "2100-01-01T00:00:00Z").out)
    assert said["checkpoint"]["checkpoint_id"] == store_of(place).manifests.ids()[-1]
    answer = dry_run(cli, place, "--restore-before", "tomorrow")
    assert answer.code == 2
    assert "'tomorrow' is not a time" in answer.err


def test_damaged_ones_are_named_and_none_at_all_has_a_code_of_its_own(cli, place: Path) -> None:
    store = store_of(place)
    *older, newest = store.manifests.ids()
    store.objects.put(store.paths.manifest(newest), b"rot")
    answer = dry_run(cli, place)
    assert answer.code == 0
    assert f"not restored: checkpoint {newest}" in answer.out
    for checkpoint_id in older:
        store.objects.put(store.paths.manifest(checkpoint_id), b"rot")
    said = dry_run(cli, place, "--json")
    assert said.code == 5
    assert json.loads(said.out)["problems"][0]["code"] == "no-restorable-checkpoint"
    assert dry_run(cli, place, "--allow-fresh").code == 0


def test_a_job_that_never_ran_starts_from_nothing(cli, place: Path) -> None:
    answer = dry_run(cli, place, "--job", "another", "--allow-fresh")
    assert answer.code == 0
    assert "job another would start from nothing" in answer.out
    answer = dry_run(cli, place, "--job", "another", "--restore", 3)
    assert (answer.code, "it never completed" in answer.out) == (2, True)


def test_everything_in_the_way_is_named(cli, place: Path) -> None:
    for file in (place / "in").glob("*.parquet"):
        file.rename(file.with_suffix(".gone"))
    pq.write_table(pa.table({"n": [1]}), place / "in" / "9.parquet")
    answer = dry_run(cli, place, "--json")
    assert answer.code == 2
    said = json.loads(answer.out)
    assert [p["code"] for p in said["problems"]] == ["source-changed"]
    answer = dry_run(cli, place, target="job.py:renamed")
    assert answer.code == 2
    assert "source other reads the same as in, whose positions are kept: call it in" in answer.out


def test_a_dry_run_says_which_sources_are_new_and_which_are_gone(cli, place: Path) -> None:
    report = json.loads(dry_run(cli, place, "--json", target="job.py:renamed").out)
    found = {source["operator_id"]: source for source in report["sources"]}
    assert {name: source["status"] for name, source in found.items()} == {
        "in": "gone",
        "other": "new",
    }
    assert found["in"]["rows_read"] > 0
    assert found["other"]["rows_read"] == 0
    said = [problem["message"] for problem in report["problems"]]
    assert sum("reads the same" in message for message in said) == 1, "it is refused once"


def test_a_live_driver_is_reported(cli, place: Path) -> None:
    store = store_of(place)
    assert "may be alive on driver-1" in dry_run(cli, place).out
    store.generations.end(store.claims.newest(), "stopped", "")
    assert "alive" not in dry_run(cli, place).out


def test_another_generation_than_expected_is_refused(cli, place: Path) -> None:
    assert dry_run(cli, place, "--expect-generation", "1").code == 0
    answer = dry_run(cli, place, "--expect-generation", "0")
    assert (answer.code, answer.out) == (2, "")
    assert "its newest generation is 1, not none as expected" in answer.err


def test_a_reset_is_reported_before_it_is_done(cli, place: Path) -> None:
    newest = store_of(place).manifests.ids()[-1]
    answer = dry_run(cli, place, "--reset-state", "windows")
    assert answer.code == 2
    assert "there is no operator windows to reset" in answer.err
    answer = dry_run(cli, place, "--reset-state", "in")
    assert answer.code == 0
    assert "job simulated would start from nothing" in answer.out
    assert f"checkpoint {newest} is left behind to reset in: all state is dropped" in answer.out
    said = json.loads(dry_run(cli, place, "--json", "--reset-state", "in").out)
    assert (said["verdict"], said["reset"]["checkpoint_id"]) == ("fresh", newest)


def test_a_reset_of_a_part_is_refused_with_all_that_it_needs(cli, place: Path) -> None:
    """All of this pipeline hangs together, so a part is everything."""
    reason = ("--reason", "to test")
    answer = dry_run(cli, place, "--reset-state", "in", "--reset-from", "in=beginning")
    assert answer.code == 2
    assert "reset_from in=beginning needs a reason for the audit log" in answer.err
    answer = dry_run(cli, place, "--reset-state", "in", "--reset-from", "in=now", *reason)
    assert "in cannot be read from now here, because everything is reset" in answer.err
    answer = dry_run(cli, place, "--reset-state", "in", "--reset-from", "out=beginning", *reason)
    assert answer.code == 2
    assert "in has to be read again, too" in answer.err
    answer = dry_run(cli, place, "--reset-state", "in", "--reset-from", "in=beginning", *reason)
    assert answer.code == 0
    assert "to reset in: all state is dropped" in answer.out


def exported(cli, place: Path) -> Path:
    newest = store_of(place).manifests.ids()[-1]
    answer = cli("savepoint", "export", "--store", place / "store", newest, place / "s")
    assert answer.code == 0, answer.err
    return place / "s"


def test_a_start_from_a_savepoint_is_looked_at_whole(cli, place: Path) -> None:
    savepoint = exported(cli, place)
    newest = store_of(place).manifests.ids()[-1]
    answer = dry_run(cli, place, "--from-savepoint", savepoint)
    assert answer.code == 0, answer.err
    assert answer.out == (
        f"job simulated would start from {savepoint}, which is checkpoint {newest} of job "
        "simulated. The savepoint is intact\n"
    )


def test_a_start_from_a_savepoint_in_json(cli, place: Path) -> None:
    savepoint = exported(cli, place)
    newest = store_of(place).manifests.ids()[-1]
    said = json.loads(dry_run(cli, place, "--from-savepoint", savepoint, "--json").out)
    assert (said["verdict"], said["exit_code"], said["problems"]) == ("restore", 0, [])
    assert (said["savepoint"], said["origin"]["checkpoint_id"]) == (str(savepoint), newest)
    options = ("--from-savepoint", savepoint, "--json", "--job", "other")
    refused = dry_run(cli, place, *options)
    assert refused.code == 2
    said = json.loads(refused.out)
    assert (said["verdict"], said["origin"], said["exit_code"]) == ("refuse", None, 2)
    assert "sink out shows output up to checkpoint" in said["problems"][0]["message"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--claim",), "only a savepoint can be claimed"),
        (("--from-savepoint", "s", "--restore", 1), "cannot be combined with"),
        (("--reset-state", "in", "--restore", 1), "reset_state drops all state"),
    ],
)
def test_what_a_run_would_refuse_is_refused(cli, place: Path, options, problem: str) -> None:
    answer = dry_run(cli, place, *options)
    assert (answer.code, problem in answer.err) == (2, True)


def test_a_start_from_a_savepoint_that_would_be_refused_is_refused(cli, place: Path) -> None:
    savepoint = exported(cli, place)
    foreign = dry_run(cli, place, "--from-savepoint", savepoint, "--job", "other")
    assert foreign.code == 2
    assert "sink out shows output up to checkpoint" in foreign.err
    changed = dry_run(cli, place, "--from-savepoint", savepoint, target="job.py:renamed")
    assert changed.code == 2
    state = next((savepoint / "operators/in").glob("*.seg"))
    state.write_bytes(b"rot")
    damaged = dry_run(cli, place, "--from-savepoint", savepoint)
    assert damaged.code == 5
    assert str(state) in damaged.err
