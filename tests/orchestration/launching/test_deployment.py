"""Starting a stream: as one generation after the expected one, or not at all."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from laminar_core.orchestration.launching.launch import shown
from laminar_core.orchestration.launching.supervised_run import SupervisedRun
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import ACTS_ON_TAG
from tests.orchestration.started import STREAM, line_of
from tests.store.stores import claim


class TestDetached:
    def test_the_run_is_over_and_the_driver_goes_on(self, processes) -> None:
        assert processes.start(reason="first of all").success
        assert (processes.living, processes.bases) == ([1], [None])
        claimed = processes.claim_of(1)
        facts = processes.facts("deployment")
        assert facts["generation"] == 1
        assert (facts["pid"], facts["why"]) == (claimed.owner.pid, "first of all")
        assert "restored_checkpoint" not in facts
        assert "--expect-generation 0 --reason 'first of all'" in facts["command"]
        assert "generation-started" in Path(facts["log"]).read_text()
        (made,) = processes.materialized("deployment")
        assert made.tags["dagster/data_version"] == "1"

    def test_the_store_knows_on_whose_word(self, stream) -> None:
        stream.start(reason="first of all")
        assert (stream.claim_of(1).actor, stream.claim_of(1).reason) == ("ann", "first of all")

    def test_it_goes_on_from_the_newest_checkpoint(self, stream) -> None:
        stream.has_run(3)
        assert stream.start("newest", expected_generation=1).success
        assert (stream.living, stream.bases) == ([2], [None, 3])
        assert stream.facts("deployment")["restored_checkpoint"] == 3

    def test_the_run_is_tagged_with_the_stream_it_acts_on(self, stream) -> None:
        run = stream.instance.get_run_by_id(stream.start().run_id)
        assert run.tags[ACTS_ON_TAG] == STREAM
        assert run.tags["dagster/max_retries"] == "0"

    def test_what_brings_the_stream_back_is_ahead_of_everything_else_in_a_queue(
        self, stream
    ) -> None:
        priorities = {
            job.name: int(job.tags.get("dagster/priority", "0"))
            for job in stream.definitions().resolve_all_job_defs()
        }
        ahead = {name for name, priority in priorities.items() if priority > 0}
        assert ahead == {"laminar_start", "laminar_recover"}

    @pytest.mark.parametrize("start_from", ["fresh", "newest"])
    def test_it_may_not_forget_a_checkpoint(self, stream, start_from) -> None:
        """Goal: the permission is only for what was looked at, and is damaged; a checkpoint that
        completes meanwhile is not."""
        if start_from == "newest":
            stream.has_run(1)
        assert stream.start(start_from).success
        assert "--allow-fresh" not in stream.facts("deployment")["command"]

    def test_a_new_version_takes_over_where_the_old_one_was_stopped(self, stream) -> None:
        stream.start("fresh")
        assert stream.start("newest", running_driver="stop").success
        assert (stream.living, stream.bases) == ([2], [None, 2])
        assert "was stopped, after checkpoint 2" in stream.facts("deployment")["driver_before"]


class TestRefusals:
    def test_a_driver_that_lives_is_left_alone_and_named(self, stream) -> None:
        stream.start("fresh", reason="first of all")
        said = line_of(stream.start("newest"))
        assert "started by ann (first of all), is alive: stop it first" in said
        assert stream.living == [1]

    def test_nobody_is_stopped_for_a_start_that_is_refused(self, stream) -> None:
        stream.start("fresh")
        assert "has checkpoint 1" in line_of(stream.start("fresh", running_driver="cancel"))
        assert "cancel it" in line_of(stream.start("fresh", running_driver="stop"))
        assert stream.living == [1]

    def test_nothing_is_begun_anew_while_there_is_a_checkpoint(self, stream) -> None:
        stream.has_run(2)
        assert "has checkpoint 2: choose `start_from: newest` to continue from it" in line_of(
            stream.start("fresh")
        )
        assert stream.living == []

    def test_what_is_damaged_may_be_given_up(self, stream) -> None:
        stream.has_run(1)
        stream.damage(1)
        assert stream.start("fresh").success
        assert "--allow-fresh" in stream.facts("deployment")["command"]

    def test_nothing_is_continued_that_never_was(self, stream) -> None:
        assert "no completed checkpoint: choose `start_from: fresh`" in line_of(
            stream.start("newest")
        )

    @pytest.mark.parametrize(
        "config",
        [{}, {"start_from": "nothing"}, {"start_from": "latest"}, {"start_form": "newest"}],
    )
    def test_a_mistyped_form_is_refused_before_the_run(self, stream, config) -> None:
        with pytest.raises(dg.DagsterInvalidConfigError, match=r"start_fr|start_fo"):
            stream.run("start", config)

    def test_another_generation_than_expected_is_reported_with_its_owner(self, stream) -> None:
        stream.has_run(1)
        said = line_of(stream.start("newest", expected_generation=4))
        assert "its newest generation is 1, not 4 as expected: generation 1, process" in said
        assert stream.store.claims.last() == 1

    def test_a_start_that_somebody_overtakes_is_told_by_whom(self, processes, monkeypatch) -> None:
        """Goal: of two starts for one death that pass all looks at once, one driver runs."""
        processes.has_run(1)
        command = StreamSpec.command

        def meanwhile(*arguments: Any) -> list[str]:
            claim(processes.store, base=1)
            return command(*arguments)

        monkeypatch.setattr(StreamSpec, "command", meanwhile)
        said = line_of(processes.start("newest"))
        assert "the driver gave up with exit code 2" in said
        assert "its newest generation is 2, not 1 as expected" in said

    def test_a_refusal_of_the_driver_is_passed_on(self, stream) -> None:
        stream.how = "refuses"
        assert line_of(stream.start()).endswith("no column merchant")
        assert stream.living == []


class TestSupervised:
    def test_it_does_not_take_the_job_back_from_somebody_else(self, processes, monkeypatch) -> None:
        processes.launch, processes.how = "supervised", "dies"
        monkeypatch.setattr(
            "laminar_core.orchestration.launching.supervised_run.claimed_by", lambda *_: None
        )
        again = SupervisedRun.again

        def meanwhile(run: SupervisedRun, pid: int) -> list[str]:
            claim(processes.store, base=1)
            return again(run, pid)

        monkeypatch.setattr(SupervisedRun, "again", meanwhile)
        assert "its newest generation is 2, not 1 as expected" in line_of(processes.start())


def test_secrets_are_not_shown() -> None:
    words = ["--conf", "spark.hadoop.fs.s3a.secret.key=abc", "--set", "input=a b", "--set", "x=y"]
    assert shown(words) == "--conf 'spark.hadoop.fs.s3a.secret.key=***' --set 'input=a b' --set x=y"
