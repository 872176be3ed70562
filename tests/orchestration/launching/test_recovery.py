"""Going back to a checkpoint: verified, from exactly that one, by one of all who want to."""

import os
import signal

import dagster as dg
import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import check_key, checkpoint_key, checkpoint_partitions
from laminar_core.store.owner import is_running
from laminar_core.store.pins import Pins
from tests.orchestration.started import STREAM, StartedStream, line_of
from tests.store.stores import claim, complete

LATER = "2100-01-01T00:00:00Z"
NEWEST = {"restore": {"newest": {}}}


def numbered(number: int) -> dict[str, object]:
    return {"restore": {"checkpoint": {"number": number}}}


def before(time: str) -> dict[str, object]:
    return {"restore": {"before": {"time": time}}}


def verdicts(stream: StartedStream) -> list[tuple[str | None, bool]]:
    key = dg.AssetCheckKey(checkpoint_key(STREAM), "manifest_integrity")
    records = stream.instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    return [
        (r.partition, r.event.dagster_event.asset_check_evaluation_data.passed) for r in records
    ]


class TestRecovery:
    def test_a_dead_job_goes_on_from_the_partition(self, stream) -> None:
        stream.has_run(3)
        result = stream.recovery(3, expected_generation=1, reason="the driver is gone")
        assert result.success
        assert (stream.living, stream.bases) == ([2], [None, 3])
        assert verdicts(stream) == [("0000000003", True)]
        facts = stream.facts("recovery")
        assert (facts["from_checkpoint"], facts["generation_before"], facts["generation"]) == (
            3,
            1,
            2,
        )
        assert (facts["why"], facts["who"]) == ("the driver is gone", "ann")
        assert "is gone" in facts["driver_before"]
        assert facts["lost_time_s"] > 0
        assert "rejected_checkpoints" not in facts

    def test_the_message_of_any_error_may_be_the_reason(self, processes) -> None:
        """Goal: a row in an error's message keeps no stream from coming back."""
        processes.has_run(1)
        assert processes.recovery(1, reason="generation 1 failed: \0" + "x" * 200_000).success
        assert processes.living == [2]
        assert processes.claim_of(2).reason.startswith("generation 1 failed: \ufffdxx")

    @pytest.mark.parametrize("name", ["recovery", "recover", "rollback", "rescale"])
    def test_it_may_not_begin_anew(self, stream, name) -> None:
        """Goal: a checkpoint that cannot be restored after all ends the start, not the state."""
        stream.has_run(2)
        config = {"recover": NEWEST, "rollback": {"by": 1}, "rescale": {"workers": 3}}
        done = stream.recovery(2) if name == "recovery" else stream.run(name, config[name])
        assert done.success
        command = stream.facts("recovery")["command"]
        assert "--restore" in command
        assert "--allow-fresh" not in command

    def test_its_provenance_is_exact(self, stream) -> None:
        """Goal: Dagster itself would note the newest event of any checkpoint."""
        stream.has_run(3)
        stream.recovery(2, reason="back")
        (made,) = stream.materialized("recovery")
        sha256 = stream.facts("recovery")["manifest_sha256"]
        assert made.partition == "0000000002"
        assert made.tags[f"dagster/input_data_version/{STREAM}/checkpoint"] == sha256
        assert made.tags["dagster/data_version"] == f"0000000002-{sha256[:12]}-g2"

    def test_what_is_left_behind_is_reported_with_the_reason(self, stream) -> None:
        stream.has_run(3)
        path = stream.damage(3)
        assert stream.recovery(1).success
        left = stream.facts("recovery")["rejected_checkpoints"]
        assert [each["checkpoint_id"] for each in left] == [2, 3]
        assert left[0]["reason"] == "it is newer than the requested one"
        assert path in left[1]["reason"]

    def test_a_damaged_checkpoint_stops_at_the_check(self, stream) -> None:
        stream.has_run(2)
        stream.damage(2)
        assert not stream.recovery(2).success
        assert verdicts(stream) == [("0000000002", False)]
        assert (stream.living, stream.materialized("recovery")) == ([], [])

    def test_an_attempt_that_never_completed_is_refused_although_it_is_a_partition(
        self, stream
    ) -> None:
        stream.has_run(2)
        name = str(checkpoint_partitions(STREAM).name)
        stream.instance.add_dynamic_partitions(name, ["0000000003"])
        assert line_of(stream.recovery(3)).endswith("cannot be restored: it never completed")
        assert verdicts(stream) == []
        assert stream.living == []

    @pytest.mark.parametrize("is_check", [True, False])
    def test_a_partition_that_a_user_added_is_refused_in_one_line(self, stream, is_check) -> None:
        stream.has_run(1)
        stream.instance.add_dynamic_partitions(str(checkpoint_partitions(STREAM).name), ["best"])
        config = {f"{STREAM}__recovery": {"config": {"reason": "by hand"}}}
        what = dg.AssetSelection.assets([STREAM, "recovery"]).without_checks()
        if is_check:
            what |= dg.AssetSelection.checks(check_key(STREAM, "manifest_integrity"))
        job = dg.Definitions(jobs=[dg.define_asset_job("one", what)])
        result = (
            dg.Definitions.merge(stream.definitions(), job)
            .resolve_job_def("one")
            .execute_in_process(
                {"ops": config},
                instance=stream.instance,
                partition_key="best",
                raise_on_error=False,
            )
        )
        assert line_of(result).startswith("partition 'best' is no checkpoint")

    def test_without_the_check_the_asset_itself_refuses(self, stream) -> None:
        """Goal: `dagster asset materialize --select payments/recovery` skips the check."""
        stream.has_run(2)
        path = stream.damage(2)
        everything = stream.definitions().resolve_implicit_global_asset_job_def()
        result = everything.execute_in_process(
            asset_selection=[dg.AssetKey([STREAM, "recovery"])],
            instance=stream.instance,
            partition_key="0000000002",
            run_config={"ops": {f"{STREAM}__recovery": {"config": {"reason": "by hand"}}}},
            raise_on_error=False,
        )
        assert path in line_of(result)
        assert verdicts(stream) == []
        assert stream.living == []

    @pytest.mark.parametrize(
        "config",
        [
            {"payments__recovery": {"config": {"reason": "x", "expects_generation": 7}}},
            {"payments__recovery": {"config": {"reason": "x", "running_driver": "kill"}}},
        ],
    )
    def test_a_config_that_does_not_reach_it_is_an_error(self, stream, config) -> None:
        """Goal: the job behind *Materialize* drops what is under a name that it does not know."""
        stream.has_run(1)
        everything = stream.definitions().resolve_implicit_global_asset_job_def()
        with pytest.raises(dg.DagsterInvalidConfigError, match="payments__recovery"):
            everything.execute_in_process(
                asset_selection=[dg.AssetKey([STREAM, "recovery"])],
                instance=stream.instance,
                partition_key="0000000001",
                run_config={"ops": config},
            )
        assert stream.living == []

    def test_of_two_for_one_death_the_second_is_told_who_was_faster(self, stream) -> None:
        stream.has_run(2)
        assert stream.recovery(2, expected_generation=1, reason="it is dead").success
        said = line_of(stream.recovery(2, expected_generation=1, running_driver="take_over"))
        assert "its newest generation is 2, not 1 as expected" in said
        assert stream.living == [2]

    def test_a_run_that_died_before_its_report_is_not_repeated(self, stream) -> None:
        """Goal: the driver is up, Dagster does not know it; a second run changes nothing."""
        stream.has_run(2)
        stream.start("newest")
        said = line_of(stream.recovery(2, expected_generation=1))
        assert "generation 2, process" in said
        assert stream.living == [2]

    def test_supervised_the_run_goes_on_as_long_as_the_job(self, processes) -> None:
        """Goal: a driver that is killed is followed by one from the newest checkpoint, not from
        the one that the first was to restore."""
        processes.launch, processes.how = "supervised", "dies"
        processes.has_run(2)
        assert processes.recovery(1).success
        assert processes.bases == [None, 1, 3]
        facts = processes.facts("recovery")
        assert (facts["outcome"], facts["driver_restarts"], facts["rows_in"]) == ("finished", 1, 30)
        assert (facts["from_checkpoint"], facts["generation"]) == (1, 2)

    def test_how_many_workers_it_had_is_kept(self, stream) -> None:
        stream.has_run(1)
        assert stream.run("rescale", {"workers": 3}).success
        stream.kill(2)
        assert stream.recovery(1).success
        assert "--workers 3" in stream.facts("recovery")["command"]


class TestRunningDriver:
    def test_it_is_left_alone_and_named(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest", reason="deployed")
        said = line_of(stream.recovery(1))
        assert "started by ann (deployed), is alive: stop it first" in said
        assert stream.living == [2]

    def test_stop_lets_it_end_with_a_checkpoint_that_is_then_left_behind(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest")
        held: list[int] = []
        stream.meanwhile.append(
            lambda: held.extend(pin.checkpoint_id for pin in Pins(stream.store).list())
        )
        assert stream.recovery(1, running_driver="stop").success
        assert (stream.living, stream.bases, held) == ([3], [None, 1, 1], [1])
        left = stream.facts("recovery")["rejected_checkpoints"]
        assert [each["checkpoint_id"] for each in left] == [2, 3]
        assert stream.facts("recovery")["rows_to_replay"] == 70
        assert Pins(stream.store).list() == []

    def test_cancel_lets_it_end_without_one(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest")
        assert stream.recovery(1, running_driver="cancel").success
        left = stream.facts("recovery")["rejected_checkpoints"]
        assert [each["checkpoint_id"] for each in left] == [2]

    def test_take_over_ends_what_is_left_of_it_here(self, processes) -> None:
        processes.has_run(1)
        processes.start("newest")
        stuck = processes.claim_of(2).owner
        os.kill(stuck.pid, signal.SIGSTOP)
        assert processes.recovery(1, running_driver="take_over").success
        assert processes.living == [3]
        assert not is_running(stuck)
        assert f"(session {stuck.pid})" in processes.facts("recovery")["driver_before"]

    def test_take_over_goes_ahead_of_a_driver_that_is_elsewhere(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest")
        assert stream.recovery(1, running_driver="take_over").success
        assert "--take-over" in stream.facts("recovery")["command"]
        assert "killed" not in stream.facts("recovery")["driver_before"]

    def test_a_process_is_stopped_and_followed_by_another(self, processes) -> None:
        processes.has_run(1)
        processes.start("newest")
        assert processes.run("rollback", {"by": 1, "running_driver": "stop"}).success
        assert (processes.living, processes.bases) == ([3], [None, 1, 1])

    def test_a_driver_that_refuses_to_stop_goes_on(self, stream) -> None:
        stream.how = "goes-on"
        stream.has_run(1)
        stream.start("newest")
        assert "refused" in line_of(stream.recovery(1, running_driver="stop"))
        assert stream.living == [2]

    def test_nobody_is_stopped_by_a_run_that_dagster_would_forget(
        self, stream, monkeypatch
    ) -> None:
        def refuse(_: object) -> None:
            raise dg.Failure("set DAGSTER_HOME")

        stream.has_run(1)
        stream.start("newest")
        monkeypatch.setattr(
            "laminar_core.orchestration.launching.restart.refuse_temporary_instance", refuse
        )
        assert line_of(stream.recovery(1, running_driver="stop")) == "set DAGSTER_HOME"
        assert stream.living == [2]

    def test_who_stopped_it_and_cannot_start_it_says_that_nobody_runs_it(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest")
        stream.how = "refuses"
        said = line_of(stream.recovery(1, running_driver="stop"))
        assert "no column merchant; the previous driver has ended, so the job is" in said

    def test_who_took_over_and_cannot_start_it_is_sent_to_look(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest")
        stream.how = "refuses"
        said = line_of(stream.recovery(1, running_driver="take_over"))
        assert "no column merchant; the previous driver may be gone" in said


class TestRecover:
    @pytest.mark.parametrize(
        ("config", "said"),
        [
            (before("yesterday"), "restore: before: time: 'yesterday' is not a time: write it in"),
            (before("2026-03-01T12:00:00"), "is not a time: write it in ISO 8601 with a zone"),
            (numbered(0), "restore: checkpoint: number: "),
            ({**NEWEST, "expected_generation": 7}, "its newest generation is 1, not 7"),
            (numbered(9), "checkpoint 9 cannot be restored: it never completed"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, stream, config, said) -> None:
        stream.has_run(1)
        assert said in line_of(stream.run("recover", config))
        assert stream.living == []

    def test_the_newest_is_the_newest_that_is_whole(self, stream) -> None:
        stream.has_run(3)
        path = stream.damage(3)
        assert stream.run("recover", {**NEWEST, "reason": "by hand"}).success
        assert stream.bases == [None, 2]
        (made,) = stream.materialized("recovery")
        assert made.partition == "0000000002"
        assert made.metadata["why"].value == "by hand"
        assert path in made.metadata["rejected_checkpoints"].value[0]["reason"]
        assert verdicts(stream) == [("0000000002", True), ("0000000003", False)]

    def test_the_newest_of_a_driver_that_is_stopped_is_the_one_it_was_stopped_with(
        self, stream
    ) -> None:
        stream.has_run(1)
        stream.start("newest")
        assert stream.run("recover", {**NEWEST, "running_driver": "stop"}).success
        assert stream.bases == [None, 1, 3]

    def test_there_is_nothing_to_recover_where_nothing_ever_completed(self, stream) -> None:
        said = line_of(stream.run("recover", NEWEST))
        assert "no completed checkpoint; laminar_start begins it" in said

    def test_a_dry_run_says_what_would_be_done_while_the_job_runs(self, stream) -> None:
        stream.has_run(2)
        stream.start("newest")
        result = stream.run("recover", {**numbered(1), "dry_run": True})
        assert result.success
        (output,) = [event for event in result.all_events if event.is_successful_output]
        facts = {k: v.value for k, v in output.event_specific_data.metadata.items()}
        assert facts["what"] == f"job {STREAM} would continue from checkpoint 1"
        assert facts["report"]["words"] == ["--restore", "1"]
        assert (stream.living, stream.materialized("recovery")) == ([2], [])

    def test_a_time_finds_the_newest_that_was_completed_before_it(self, stream) -> None:
        stream.has_run(3)
        assert stream.run("recover", before(LATER)).success
        assert stream.bases == [None, 3]

    def test_before_the_first_one_there_is_none(self, stream) -> None:
        stream.has_run(3)
        said = line_of(stream.run("recover", before("1999-12-31T23:59:59+01:00")))
        assert "no checkpoint was completed before that time" in said

    def test_somebody_who_claims_the_job_meanwhile_goes_on(self, stream) -> None:
        """Goal: of two that pass all looks at once, the store lets one through."""
        stream.has_run(2)
        stream.meanwhile.append(lambda: claim(stream.store, base=2))
        said = line_of(stream.run("recover", NEWEST))
        assert "exit code 2: job payments is not started: its newest generation is 2, not 1" in said
        assert stream.bases == [None, 2]


class TestRollback:
    def test_it_goes_back_by_completed_checkpoints_of_the_timeline(self, stream) -> None:
        """Goal: 4 and 5 are of a generation that another one went back behind."""
        stream.has_run(3)
        complete(stream.store, 4, claim(stream.store, base=3))
        complete(stream.store, 5, 2)
        complete(stream.store, 6, claim(stream.store, base=3))
        stream.kill(3)
        assert stream.run("rollback", {"by": 2}).success
        assert stream.bases[-1] == 2

    @pytest.mark.parametrize(
        ("by", "said"), [(2, "before its newest, 2, there is 1"), (0, "greater than or equal to 1")]
    )
    def test_as_far_as_there_are_any(self, stream, by, said) -> None:
        stream.has_run(2)
        assert said in line_of(stream.run("rollback", {"by": by}))

    def test_a_driver_that_runs_is_stopped_if_that_is_wanted(self, stream) -> None:
        """Goal: counted from before the stop, whose checkpoint is one more."""
        stream.has_run(2)
        stream.start("newest")
        assert stream.run("rollback", {"by": 1, "running_driver": "stop"}).success
        assert stream.bases == [None, 2, 2]


class TestRescale:
    def test_it_goes_on_from_where_the_driver_was_stopped(self, stream) -> None:
        stream.has_run(1)
        stream.start("newest")
        assert stream.run("rescale", {"workers": 5, "reason": "peak"}).success
        assert (stream.living, stream.bases) == ([3], [None, 1, 3])
        facts = stream.facts("recovery")
        assert "--workers 5" in facts["command"]
        assert "--restore 3" in facts["command"]
        assert facts["driver_before"].endswith("is alive: it was stopped, after checkpoint 3")
        assert "rejected_checkpoints" not in facts

    def test_what_cannot_be_rescaled_is_not_stopped(self, stream) -> None:
        stream.how = "loops"
        stream.has_run(1)
        stream.start("newest")
        assert "loops cannot be rescaled" in line_of(stream.run("rescale", {"workers": 5}))
        assert stream.living == [2]

    def test_a_job_that_is_dead_goes_on_from_its_newest_checkpoint(self, stream) -> None:
        stream.has_run(2)
        assert stream.run("rescale", {"workers": 1}).success
        assert stream.bases == [None, 2]
        assert stream.store.manifests.read(CheckpointId(3)) is not None
