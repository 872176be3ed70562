"""Restore drills as Dagster runs, with a stand-in for the command that starts Spark."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.configuration import SparkOptions
from laminar_core.orchestration.checkpoint_choices import AtRandom, Numbered
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.drill_jobs import (
    DrillForm,
    build_drill_job,
    drill_command,
    seed_of,
)
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import DRILL_POOL, DRILL_TAG, asset_key, check_key
from tests.orchestration.housekeeping_bench import SPEC, Bench, bench_at
from tests.retention.retention_jobs import JOB

STAND_IN = "import runpy; runpy.run_module('tests.orchestration.drill_stand_in')"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path) as bench:
        bench.job.start()
        bench.job.complete()
        yield bench


def notes(bench: Bench) -> Path:
    return bench.folder / "notes"


def drill(bench: Bench, how: str, **config: object) -> dg.ExecuteInProcessResult:
    spec = SPEC.model_copy(
        update={
            "arguments": {"how": how, "notes": str(notes(bench))},
            "laminar": (sys.executable, "-c", STAND_IN),
        }
    )
    job = build_drill_job(Group((spec,)), bench.clock)
    return bench.run(job, {"which": {"newest": {}}, "reason": "every night", **config})


def verdicts(bench: Bench) -> list[tuple[bool, str]]:
    key = check_key(JOB, "restorable")
    records = bench.instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    events = [record.event.dagster_event for record in records if record.event is not None]
    found = [event.asset_check_evaluation_data for event in events if event is not None]
    return [(each.passed, each.description or "") for each in found]


def test_a_drill_that_passed_is_reported_with_its_operators(bench) -> None:
    result = drill(bench, "passes")
    assert result.success
    (told,) = bench.materialised("drill")
    assert (told["outcome"], told["drill"], told["checkpoint_id"]) == ("passed", 7, 5)
    assert (told["duration_s"], told["rows_restored"], told["rows_read"]) == (1.5, 4, 20)
    (operator,) = told["operators"]
    assert (operator["operator"], operator["the same"]) == ("window", True)
    (record,) = bench.instance.fetch_materializations(asset_key(JOB, "drill"), limit=9).records
    assert record.asset_materialization.tags[DRILL_TAG] == "7"
    ((passed, said),) = verdicts(bench)
    assert passed
    assert said.endswith("passed")


def test_it_acts_for_whoever_asked_in_the_run_and_leaves_no_copy_behind(bench) -> None:
    result = drill(bench, "passes")
    (told,) = bench.materialised("drill")
    assert told["reason"] == f"every night in {result.run_id}"
    _, copy = notes(bench).read_text().split()
    assert not Path(copy).parent.exists()


def test_a_drill_that_did_not_pass_is_reported_and_fails_the_run_with_its_line(bench) -> None:
    said = "drill 7 failed: window restored 3 rows, its files have 4"
    assert bench.failure(drill(bench, "fails")) == said
    (told,) = bench.materialised("drill")
    assert (told["outcome"], told["problems"]) == (
        "failed",
        ["window restored 3 rows, its files have 4"],
    )
    assert [passed for passed, _ in verdicts(bench)] == [False]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refuses", "exit code 2: the job has no completed checkpoint to drill"),
        ("breaks", "exit code 1: KeyError: 'x'"),
        ("mumbles", "no record of a drill: restoring"),
        ("dies", "the drill was killed by signal 9: restoring"),
    ],
)
def test_without_a_record_only_the_reason_is_reported(bench, how, said) -> None:
    assert said in bench.failure(drill(bench, how))
    assert (bench.materialised("drill"), verdicts(bench)) == ([], [])


def test_a_random_one_is_drawn_by_a_seed_that_is_reported(bench) -> None:
    result = drill(bench, "passes", which={"random": {}})
    (told,) = bench.materialised("drill")
    assert (told["checkpoint_id"], told["seed"]) == (2, seed_of(result.run_id))
    assert drill(bench, "passes", which={"random": {"seed": 5}}).success
    assert bench.materialised("drill")[-1]["seed"] == 5


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"which": {"checkpoint": {"number": 0}}}, "which: checkpoint: number"),
        ({"workers": 0}, "workers"),
    ],
)
def test_an_unclear_request_is_refused_before_anything_starts(bench, config, said) -> None:
    assert said in bench.failure(drill(bench, "passes", **config))
    assert not notes(bench).exists()


def test_the_command_is_what_a_person_would_type() -> None:
    spec = StreamSpec(
        name="payments",
        program=Path("jobs/payments.py"),
        arguments={"input": "in"},
        spark=SparkOptions(conf={"spark.executor.memory": "4g"}),
        laminar=("laminar",),
    )
    form = DrillForm(which=Numbered(number=4), workers=3, scratch="s3://b/x")
    assert drill_command(spec, "/store", form, None) == [
        *("laminar", "drills", "run", "jobs/payments.py", "--set", "input=in"),
        *("--store", "/store", "--job", "payments", "--checkpoint", "4"),
        *("--workers", "3", "--batches", "10", "--scratch", "s3://b/x"),
        *("--conf", "spark.executor.memory=4g", "--reason", "requested in Dagster", "--json"),
    ]
    drawn = drill_command(spec, "/store", DrillForm(which=AtRandom()), 9)
    assert drawn[drawn.index("--random") + 1] == "9"
    assert "--checkpoint" not in drawn


def test_all_drills_share_a_pool(bench) -> None:
    (node,) = build_drill_job(Group((SPEC,)), bench.clock).nodes
    assert isinstance(node.definition, dg.OpDefinition)
    assert node.definition.pool == DRILL_POOL


@pytest.mark.parametrize("launch", ["detached", "supervised"])
def test_a_drill_may_take_as_long_as_it_holds_its_checkpoint(bench, launch) -> None:
    job = build_drill_job(Group((SPEC.model_copy(update={"launch": launch}),)), bench.clock)
    assert job.tags["dagster/max_runtime"] == "21600"
    assert job.tags["dagster/max_retries"] == "0"
