"""Jobs that act on a stream: what they leave in its store, and what they show in Dagster."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration import acts
from laminar_core.orchestration.control.jobs import ACTS
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.commands import CancelJob, SetMode, StopJob, TakeCheckpoint, TakeSavepoint
from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.resources import CheckpointStoreResource
from laminar_core.resources.names import ACT_TAG, ACTOR_TAG
from laminar_core.sensors.pauses import Pause, read_pauses
from laminar_core.store.owner import this_process
from laminar_core.store.pins import Pins
from laminar_core.store.savepoint_export import export_savepoint
from tests.orchestration.acted_on import JOBS, STREAM, ActedOn, line_of, shown
from tests.store.stores import complete

ANN = {ACTOR_TAG: "ann"}


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ActedOn]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield ActedOn(instance, tmp_path)


def completed(stream: ActedOn) -> CheckpointId:
    complete(stream.store, 1, stream.generation)
    return CheckpointId(1)


def copied(stream: ActedOn, target: Path) -> str:
    """Write the savepoint that the driver would copy."""
    ann = Actor("ann", reason="to move")
    return export_savepoint(stream.store, completed(stream), str(target), ann, 1_700_000_000_000)


class TestCheckpoint:
    def test_it_is_taken_for_who_wants_it(self, stream) -> None:
        stream.will_answer(checkpoint_id=7)
        result = stream.run("checkpoint", {"reason": "before the release"}, ANN)
        command = stream.asked()
        assert command.action == TakeCheckpoint()
        assert (command.actor, command.run_id) == ("ann", result.run_id)
        assert command.reason == "before the release"
        assert shown(result) == {
            "what": "checkpoint 7 completed",
            "command": 1,
            "generation": 1,
            "checkpoint_id": 7,
        }

    @pytest.mark.parametrize(
        ("tags", "actor"),
        [
            ({"user": "bob"}, "bob"),
            ({"dagster/sensor_name": "payments_alignment"}, "sensor payments_alignment"),
            ({}, f"{this_process().user} in Dagster"),
        ],
    )
    def test_who_wants_it_is_in_the_tags(self, stream, tags, actor) -> None:
        stream.will_answer(checkpoint_id=7)
        assert stream.run("checkpoint", {}, tags).success
        assert stream.asked().actor == actor

    @pytest.mark.parametrize("outcome", ["refused", "expired", "failed", "interrupted"])
    def test_what_was_not_done_is_one_line_and_not_tried_again(self, stream, outcome) -> None:
        stream.will_answer(outcome, reason="the disk is full")
        result = stream.run("checkpoint", {})
        assert line_of(result) == f"{outcome} command 1 for job payments: the disk is full"

    def test_nobody_runs_the_job(self, stream) -> None:
        stream.store.generations.end(stream.generation, "stopped", "")
        assert line_of(stream.run("checkpoint", {})) == (
            "job payments is not running: generation 1, the last one, stopped; start it with "
            "`laminar run`"
        )

    def test_the_time_is_over(self, stream) -> None:
        line = line_of(stream.run("checkpoint", {"timeout": "1 millisecond"}))
        assert line.startswith("no answer to command 1 within 0 s, no driver has taken it up")

    def test_the_store_is_down(self, stream) -> None:
        (stream.place / "store" / STREAM / "control").write_text("no directory")
        assert "cannot" in line_of(stream.run("checkpoint", {}))


class TestSavepoint:
    def test_it_is_an_asset_of_its_own(self, stream, tmp_path) -> None:
        uri = copied(stream, tmp_path / "s")
        stream.will_answer(checkpoint_id=1, savepoint=uri)
        result = stream.run("savepoint", {"target": str(tmp_path / "new")}, ANN)
        assert stream.asked().action == TakeSavepoint(target=f"{tmp_path}/new")
        assert shown(result)["what"] == f"checkpoint 1 is the savepoint {uri}"
        assert shown(result)["savepoint"] == uri
        made = stream.materialized("savepoint")
        assert made.metadata["savepoint"].value == uri
        assert made.metadata["checkpoint_id"].value == 1
        assert made.tags is not None
        assert made.tags["dagster/data_version"] == made.metadata["savepoint_sha256"].value

    def test_one_that_dagster_cannot_reach_is_shown_all_the_same(self, stream) -> None:
        stream.will_answer(checkpoint_id=1, savepoint="/nowhere/s")
        assert stream.run("savepoint", {"target": "/nowhere/s"}).success
        assert (
            "nothing at /nowhere/s"
            in stream.materialized("savepoint").metadata["not_readable_from_here"].value
        )


class TestStop:
    @pytest.mark.parametrize(
        ("how", "action"),
        [
            ({"checkpoint": {}}, StopJob()),
            ({"cancel": {}}, CancelJob()),
            (
                {"savepoint": {"target": "s3://bucket/s?region=x"}},
                StopJob(target="s3://bucket/s?region=x"),
            ),
        ],
    )
    def test_the_command_is_the_one_that_is_meant(self, stream, how, action) -> None:
        stream.will_answer("refused", reason="in a test")
        line_of(stream.run("stop", {"how": how}))
        assert stream.asked().action == action

    def test_the_end_is_shown_on_the_deployment(self, stream, monkeypatch) -> None:
        stream.will_answer(reason="the job ended: stopped")
        stream.ends_when_asked(monkeypatch)
        result = stream.run("stop", {"how": {"checkpoint": {}}, "reason": "maintenance"}, ANN)
        assert shown(result)["outcome"] == "stopped"
        told = {k: v.value for k, v in stream.observed("deployment").metadata.items()}
        assert told == {
            "what": "generation 1: stopped",
            "actor": "ann",
            "generation": 1,
            "reason": "maintenance",
        }


class TestMode:
    def test_what_holds_is_shown_on_the_deployment(self, stream) -> None:
        details = {"alignment_timeout_ms": 0, "edges": 3, "edges_always_aligned": 1}
        stream.will_answer(details=details)
        what = "barriers overtake at once from now on; 1 of 3 edges always align"
        result = stream.run("mode", {"mode": {"unaligned": {}}, "reason": "p99 2.1 s"})
        assert stream.asked().action == SetMode(mode="unaligned")
        assert shown(result)["what"] == what
        told = {k: v.value for k, v in stream.observed("deployment").metadata.items()}
        assert (told["what"], told["mode"], told["reason"]) == (what, "unaligned", "p99 2.1 s")
        assert told["edges_always_aligned"] == 1

    def test_a_time_is_a_mode(self, stream) -> None:
        stream.will_answer(details={"alignment_timeout_ms": None})
        assert stream.run("mode", {"mode": {"overtake": {"after": "5 seconds"}}}).success
        assert stream.asked().action == SetMode(mode=5_000)

    def test_a_refusal_says_why(self, stream) -> None:
        stream.will_answer("refused", reason="every edge of the job must stay aligned")
        assert "must stay aligned" in line_of(stream.run("mode", {"mode": {"unaligned": {}}}))


class TestPins:
    def test_a_pin_is_set_and_taken_away(self, stream) -> None:
        completed(stream)
        result = stream.run("pin", {"checkpoint_id": 1, "reason": "to compare"}, ANN)
        assert shown(result) == {"what": "checkpoint 1 is pinned as pin"}
        seen = stream.observed("checkpoint")
        assert (seen.partition, seen.metadata["reason"].value) == ("0000000001", "to compare")
        (pin,) = Pins(stream.store).list()
        assert pin.record is not None
        assert (pin.record.actor, pin.record.reason) == ("ann", "to compare")
        again = stream.run("unpin", {"checkpoint_id": 1}, ANN)
        assert shown(again) == {"what": "checkpoint 1 is no longer pinned as pin"}
        assert Pins(stream.store).list() == []
        assert stream.audited() == [
            ("pin", "intended", "ann", result.run_id),
            ("pin", "done", "ann", result.run_id),
            ("unpin", "intended", "ann", again.run_id),
        ]

    def test_a_hold_ends(self, stream) -> None:
        completed(stream)
        config = {"checkpoint_id": 1, "name": "audit", "hold_for": "2 days"}
        assert shown(stream.run("pin", config)) == {
            "what": "checkpoint 1 is held for 2 days as audit"
        }
        (pin,) = Pins(stream.store).list()
        assert pin.record is not None
        assert pin.record.expires_at_ms == pin.record.created_at_ms + 2 * 86_400_000

    @pytest.mark.parametrize("job", ["pin", "unpin"])
    def test_what_is_not_there_is_refused(self, stream, job) -> None:
        line = line_of(stream.run(job, {"checkpoint_id": 9}))
        assert line.startswith(("job payments has no completed", "checkpoint 9 has no pin"))


def test_a_checkpoint_is_exported_without_a_driver(stream, tmp_path) -> None:
    completed(stream)
    stream.store.generations.end(stream.generation, "stopped", "")
    target = str(tmp_path / "s")
    result = stream.run("export_savepoint", {"checkpoint_id": 1, "target": target}, ANN)
    assert shown(result)["what"] == f"checkpoint 1 is the savepoint {target}"
    assert stream.materialized("savepoint").metadata["made_by"].value == "ann"
    assert stream.audited()[0] == ("export", "intended", "ann", result.run_id)
    again = stream.run("export_savepoint", {"checkpoint_id": 1, "target": target})
    assert "is not empty" in line_of(again)


def test_a_pause_is_recorded_with_its_author_until_it_is_ended(stream) -> None:
    form = {"hold_for": "1 hour", "reason": "a repair"}
    assert stream.run("pause", form, {ACTOR_TAG: "ann"}).success
    pause = read_pauses(stream.instance, [STREAM])[STREAM]
    assert (pause.sensors, pause.by) == (("alignment", "recovery"), "ann")
    assert pause.until_ms is not None
    assert "a repair" in stream.observed("deployment").metadata["what"].value
    assert stream.run("resume", {}).success
    assert read_pauses(stream.instance, [STREAM])[STREAM] == Pause()


def test_a_pause_that_is_longer_than_any_calendar_ends_with_the_calendar(stream) -> None:
    assert stream.run("pause", {"hold_for": "3000000 days"}).success
    assert read_pauses(stream.instance, [STREAM])[STREAM].until_ms == TIME_MS_MAX


def test_a_sensor_that_cannot_be_paused_is_refused(stream) -> None:
    said = line_of(stream.run("pause", {"sensors": ["run_failures"]}))
    assert said.startswith("config: sensors: give some of checkpoint_reporter, alignment, ")
    assert read_pauses(stream.instance, [STREAM]) == {}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"laminar_pin": {"config": {}}}, 'Missing required config entry "checkpoint_id"'),
        (
            {"laminar_pin": {"config": {"checkpoint_id": 1, "hold": "x"}}},
            'Received unexpected config entry "hold"',
        ),
        (
            {"laminar__pin": {"config": {"checkpoint_id": 1}}},
            'Received unexpected config entry "laminar__pin"',
        ),
    ],
)
def test_a_field_that_is_missing_or_mistyped_is_refused_before_the_run(config, problem) -> None:
    resources = {"laminar_checkpoints": CheckpointStoreResource(uri="/s")}
    job = dg.Definitions(jobs=[JOBS["pin"]], resources=resources).resolve_job_def("laminar_pin")
    with pytest.raises(dg.DagsterInvalidConfigError, match=problem):
        dg.validate_run_config(job, {"ops": config})


def test_a_run_that_dagster_would_forget_does_nothing(stream, monkeypatch) -> None:
    def refuse(instance: dg.DagsterInstance) -> None:
        assert instance is stream.instance
        raise dg.Failure("it would be forgotten")

    monkeypatch.setattr(acts, "refuse_temporary_instance", refuse)
    some: dict[str, object] = {"target": "/s", "checkpoint_id": 1, "timeout": "1 millisecond"}
    some |= {"mode": {"aligned": {}}, "how": {"checkpoint": {}}}
    for act in ACTS:
        config = {name: value for name, value in some.items() if name in act.form.model_fields}
        assert line_of(stream.run(act.name, config)) == "it would be forgotten"
    assert stream.log.numbers() == []
    assert stream.audited() == []


def test_the_jobs_say_on_what_they_act() -> None:
    for name, job in JOBS.items():
        assert job.name == f"laminar_{name}"
        assert job.tags[ACT_TAG] == name
        assert job.tags["dagster/max_retries"] == "0"
        assert job.description
