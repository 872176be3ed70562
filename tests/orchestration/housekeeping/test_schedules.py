"""Schedules: what they ask for at their time, and why they ask for nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.definitions import housekeeping_definitions
from laminar_core.orchestration.housekeeping.schedules import schedules_of
from laminar_core.orchestration.spec import SchedulePolicy, StreamSpec
from laminar_core.resources import CheckpointStoreResource
from laminar_core.resources.names import ACTS_ON_TAG, StreamJob, schedule_name
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.orchestration.housekeeping_bench import Bench, bench_at
from tests.retention.retention_jobs import JOB, StoredJob
from tests.store.stores import claim

NIGHT = datetime(2026, 11, 21, 4, 43, tzinfo=UTC)
SPEC = StreamSpec(name=JOB, program=Path("p.py"), tags={"team": "payments"})

ONE = Group((SPEC,))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path) as bench:
        yield bench


def tick(
    bench: Bench, name: StreamJob, at: datetime = NIGHT, group: Group = ONE
) -> tuple[list[dg.RunRequest], str | None]:
    """Return the requests of a tick, or why there are none."""
    (schedule,) = (s for s in schedules_of(group) if s.name == schedule_name(name))
    with dg.build_schedule_context(
        instance=bench.instance,
        scheduled_execution_time=at,
        resources={"laminar_checkpoints": CheckpointStoreResource(uri=bench.uri)},
    ) as context:
        answer = schedule.evaluate_tick(context)
    return list(answer.run_requests or ()), answer.skip_message


def test_each_time_of_the_policy_has_a_schedule_in_utc() -> None:
    found = {s.name: (s.cron_schedule, s.execution_timezone) for s in schedules_of(Group((SPEC,)))}
    assert found == {
        f"laminar_{name}_schedule": (getattr(SPEC.schedules, name), "UTC")
        for name in ("retention", "drill", "audit", "orphans", "costs")
    }


def test_none_turns_one_off_and_not_enabled_leaves_all_to_a_person() -> None:
    policy = SchedulePolicy(drill=None, costs=None)
    spec = SPEC.model_copy(update={"schedules": policy})
    assert {s.name for s in schedules_of(Group((spec,)))} == {
        f"laminar_{name}_schedule" for name in ("retention", "audit", "orphans")
    }
    assert {s.default_status for s in schedules_of(Group((spec,)))} == {
        dg.DefaultScheduleStatus.RUNNING
    }
    off = SPEC.model_copy(update={"schedules": SchedulePolicy(enabled=False)})
    assert {s.default_status for s in schedules_of(Group((off,)))} == {
        dg.DefaultScheduleStatus.STOPPED
    }


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("retention", {"mode": "delete"}),
        ("audit", {}),
        ("orphans", {"mode": "delete"}),
        ("costs", {}),
    ],
)
def test_a_tick_asks_for_one_run_that_says_why(bench, name, form) -> None:
    bench.job.start()
    (request,), _ = tick(bench, name)
    assert request.run_key == "payments 2026-11-21T04:43Z"
    reason = f"laminar_{name}_schedule of 2026-11-21T04:43Z"
    assert request.run_config == {
        "ops": {f"laminar_{name}": {"config": {"stream": JOB, **form, "reason": reason}}}
    }
    assert request.tags[ACTS_ON_TAG] == JOB
    assert request.tags["team"] == "payments"
    assert request.tags["dagster/priority"] == "-1"


def test_a_night_drills_the_newest_and_one_that_is_drawn(bench) -> None:
    bench.job.start()
    for _ in range(3):
        bench.job.complete()
    (newest, drawn), _ = tick(bench, "drill")
    assert (newest.run_key, drawn.run_key) == (
        "payments 2026-11-21T04:43Z newest",
        "payments 2026-11-21T04:43Z random",
    )
    forms = [r.run_config["ops"]["laminar_drill"]["config"] for r in (newest, drawn)]
    assert [next(iter(form["which"])) for form in forms] == ["newest", "random"]
    again = tick(bench, "drill")[0][1]
    other = tick(bench, "drill", datetime(2026, 11, 22, 4, 43, tzinfo=UTC))[0][1]
    assert again.run_config["ops"]["laminar_drill"]["config"]["which"] == forms[1]["which"]
    assert other.run_config["ops"]["laminar_drill"]["config"]["which"] != forms[1]["which"]


def test_the_only_checkpoint_is_drilled_once(bench) -> None:
    bench.job.start()
    bench.job.complete()
    (request,), _ = tick(bench, "drill")
    assert request.run_key == "payments 2026-11-21T04:43Z newest"


def test_without_a_checkpoint_there_is_nothing_to_drill(bench) -> None:
    bench.job.start()
    requests, why = tick(bench, "drill")
    assert not requests
    assert why == ("the store has 0 completed checkpoints: laminar_drill needs 1")


def test_a_stream_that_never_ran_is_left_alone(bench) -> None:
    requests, why = tick(bench, "retention")
    assert not requests
    assert why == "the stream never ran: there is nothing to do"


def test_a_store_that_is_down_is_a_skipped_tick_with_the_reason(bench, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    bench.uri = str(tmp_path / "file")
    requests, why = tick(bench, "retention")
    assert not requests
    assert "the store could not be read" in (why or "")
    assert "is a file, not a store" in (why or "")


def test_a_store_that_does_not_answer_is_a_skipped_tick(bench, monkeypatch) -> None:
    def no_answer(*_args: object) -> None:
        raise StorageUnavailable(ErrorCode.STORE_IO, "the bucket does not answer")

    bench.job.start()
    monkeypatch.setattr(MemoryObjectStore, "children", no_answer)
    requests, why = tick(bench, "drill")
    assert not requests
    assert why == "the store could not be read: the bucket does not answer"


def test_each_stream_has_its_own_times_and_its_own_runs(bench) -> None:
    """Goal: one schedule; a run for each stream that is due, and the others do not matter."""
    bench.job.start()
    early = SchedulePolicy(retention="0 3 * * *")
    others = {"orders": SchedulePolicy(), "early": early, "off": SchedulePolicy(enabled=False)}
    specs = [
        SPEC.model_copy(update={"name": name, "schedules": policy})
        for name, policy in others.items()
    ]
    group = Group((SPEC, *specs))
    for name in ("orders", "early", "off"):
        claim(CheckpointStore(open_object_store(bench.uri), name))
    for hour, minute, due in ((4, 17, [JOB, "orders"]), (3, 0, ["early"])):
        requests, _ = tick(
            bench, "retention", datetime(2026, 11, 21, hour, minute, tzinfo=UTC), group
        )
        at = f"2026-11-21T{hour:02}:{minute:02}Z"
        assert [r.run_key for r in requests] == [f"{stream} {at}" for stream in due]
        assert [r.tags[ACTS_ON_TAG] for r in requests] == due


def test_a_tick_that_has_nothing_to_do_says_why_once(bench) -> None:
    group = Group((SPEC, SPEC.model_copy(update={"name": "orders"})))
    _, why = tick(bench, "costs", NIGHT, group)
    assert why == "2 streams: the stream never ran: there is nothing to do"


def test_what_a_schedule_asks_for_is_what_its_job_takes(bench) -> None:
    bench.job.start()
    for _ in range(2):
        bench.job.complete()
    definitions = housekeeping_definitions(Group((SPEC,)), bench.clock)
    for name in ("retention", "drill", "audit", "orphans", "costs"):
        job = next(j for j in definitions.jobs or [] if j.name == f"laminar_{name}")
        for request in tick(bench, name)[0]:
            assert isinstance(job, dg.JobDefinition)
            assert dg.validate_run_config(job, request.run_config)


def test_scheduled_runs_do_their_work_in_a_directory(bench) -> None:
    bench.uri = str(bench.folder / "store")
    bench.job = StoredJob(open_object_store(bench.uri))
    bench.job.start()
    for _ in range(5):
        bench.job.complete()
    definitions = housekeeping_definitions(Group((SPEC,)), bench.clock)
    for name in ("retention", "audit", "orphans", "costs"):
        job = next(j for j in definitions.jobs or [] if j.name == f"laminar_{name}")
        (request,), _ = tick(bench, name)
        assert isinstance(job, dg.JobDefinition)
        result = job.execute_in_process(
            request.run_config,
            instance=bench.instance,
            tags={**request.tags, "dagster/schedule_name": schedule_name(name)},
            resources=bench.resources(),
        )
        assert result.success
    assert bench.store.manifests.ids() == [3, 4, 5]
