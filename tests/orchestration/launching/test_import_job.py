"""A stream starts from a savepoint after all is said and read, or not at all."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.orchestration import acts
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching import import_job
from laminar_core.orchestration.launching.dry_run import DryRun
from laminar_core.orchestration.launching.import_job import build_import_job
from laminar_core.orchestration.launching.launch import StartedDriver
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.commands import StopJob
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.resources.names import ACTOR_TAG
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoint_export import export_savepoint
from laminar_core.store.savepoint_import import import_savepoint
from laminar_core.store.savepoints import read_savepoint
from tests.orchestration.acted_on import SPEC, STREAM, ActedOn, line_of, shown
from tests.store.stores import claim, claimant, complete, never

ANN = Actor("ann", reason="to move")
MOVED_MS = 1_700_000_000_000
NAME = "laminar_import_savepoint"
RESTORE = {"verdict": "restore", "job": STREAM, "checkpoint": {"checkpoint_id": 2}, "problems": []}


class Import(ActedOn):
    """The job, and what it would have started."""

    def __init__(
        self, instance: dg.DagsterInstance, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(instance, place)
        self.started: list[dict[str, Any]] = []
        self.fails = False
        self.answer: dict[str, Any] = RESTORE
        self.asked_with: list[Sequence[str]] = []
        monkeypatch.setattr(import_job, "start_driver", self._start)
        monkeypatch.setattr(import_job, "dry_run", self._dry_run)

    def import_from(self, uri: str, **config: Any) -> dg.ExecuteInProcessResult:
        resources = {
            "laminar_checkpoints": CheckpointStoreResource(uri=self.uri),
            "laminar_driver": SparkDriverClient(),
            "laminar_launcher": DetachedDriver(),
        }
        definitions = dg.Definitions(jobs=[build_import_job(Group((SPEC,)))], resources=resources)
        return definitions.resolve_job_def(NAME).execute_in_process(
            instance=self.instance,
            run_config={"ops": {NAME: {"config": {"savepoint": uri, **config}}}},
            tags={ACTOR_TAG: "ann"},
            raise_on_error=False,
        )

    def _start(self, *_: object, **how: Any) -> StartedDriver:
        if self.fails:
            raise dg.Failure("no driver came up")
        self.started.append(how)
        begun = {"generation": 2, "restored_checkpoint_id": 2}
        return StartedDriver(2, ("laminar", "run"), None, {"generation-started": begun})

    def _dry_run(self, _spec: object, _uri: str, env: Any, words: Sequence[str]) -> DryRun:
        assert env["LAMINAR_ACTOR"] == "ann"
        self.asked_with.append(words)
        return DryRun(self.answer)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Import(instance, tmp_path, monkeypatch)


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    """A savepoint of the same job in another environment."""
    store = CheckpointStore(LocalObjectStore(tmp_path / "other"), STREAM)
    complete(store, 1, claim(store))
    return export_savepoint(store, CheckpointId(1), str(tmp_path / "foreign"), ANN, MOVED_MS)


def own(stream: Import) -> str:
    complete(stream.store, 1, stream.generation)
    place = str(stream.place / "own")
    return export_savepoint(stream.store, CheckpointId(1), place, ANN, MOVED_MS)


def end(stream: Import) -> None:
    stream.store.generations.end(stream.generation, "stopped", "")


class TestForeign:
    def test_it_is_started_from(self, stream, foreign) -> None:
        end(stream)
        result = stream.import_from(foreign, reason="move", claim=True)
        effect = "job payments begins with the state of checkpoint 1 of job payments in "
        assert shown(result)["effect"].startswith(effect)
        assert shown(result)["outcome"] == "started"
        (start,) = stream.started
        assert start == {
            "first": ["--from-savepoint", foreign, "--claim"],
            "expected_generation": 1,
            "reason": "move",
        }
        assert stream.asked_with == [["--from-savepoint", foreign]]
        assert stream.materialized("deployment").metadata["generation"].value == 2
        seen = stream.observed("savepoint")
        assert seen.metadata["what"].value.endswith("as generation 2")
        assert seen.metadata["savepoint"].value == foreign

    def test_a_dry_run_reads_it_and_starts_nothing(self, stream, foreign) -> None:
        result = stream.import_from(foreign, dry_run=True)
        assert shown(result)["outcome"] == "dry run: nothing was started"
        assert shown(result)["size_bytes"] > 0
        assert len(stream.asked_with) == 1
        assert stream.started == []

    def test_one_that_does_not_fit_the_pipeline_stops_nobody(self, stream, foreign) -> None:
        stream.answer = {**RESTORE, "verdict": "refuse", "problems": [{"message": "no such op"}]}
        line = line_of(stream.import_from(foreign, running_driver="stop"))
        assert line == "job payments would be refused: no such op"
        assert stream.log.numbers() == []
        assert stream.started == []

    def test_a_second_time_it_is_refused(self, stream, foreign) -> None:
        store, found = stream.store, read_savepoint(open_object_store(foreign))
        generation = store.claims.claim(claimant(), wait_ms=never, take_over=True)
        brought = import_savepoint(store, found, generation, 1_700_000_000_000, claim=False)
        brought.record_base()
        brought.publish()
        line = line_of(stream.import_from(foreign))
        assert "has already started from the savepoint" in line
        assert line.endswith("start it from its newest checkpoint")

    def test_a_job_with_checkpoints_of_its_own_keeps_them(self, stream, foreign) -> None:
        complete(stream.store, 1, stream.generation)
        line = line_of(stream.import_from(foreign, dry_run=True))
        assert line.startswith("job payments has checkpoints of its own")
        assert stream.asked_with == []


class TestOwn:
    def test_it_is_a_step_back(self, stream) -> None:
        place = own(stream)
        end(stream)
        result = stream.import_from(place)
        assert "goes back to checkpoint 1" in shown(result)["effect"]
        assert "later output is withdrawn" in shown(result)["effect"]

    def test_a_driver_that_lives_is_left_alone(self, stream) -> None:
        line = line_of(stream.import_from(own(stream)))
        assert line.startswith("job payments is not started: generation 1, process ")
        assert stream.asked_with == []
        assert stream.log.numbers() == []

    def test_one_that_is_stopped_and_not_followed_is_reported(self, stream, monkeypatch) -> None:
        stream.will_answer(checkpoint_id=2)
        stream.ends_when_asked(monkeypatch)
        stream.fails = True
        line = line_of(stream.import_from(own(stream), running_driver="stop"))
        assert stream.asked().action == StopJob()
        assert line.startswith("no driver came up; the previous driver has ended, so the job")

    def test_unless_it_is_to_be_taken_over(self, stream, monkeypatch) -> None:
        monkeypatch.setattr(
            "laminar_core.orchestration.launching.running_driver.kill_session_of", lambda _: False
        )
        assert stream.import_from(own(stream), running_driver="take_over").success
        (start,) = stream.started
        assert start["first"][0] == "--take-over"


def test_somebody_else_was_faster(stream, foreign) -> None:
    end(stream)
    line = line_of(stream.import_from(foreign, expected_generation=0))
    assert "generation 1" in line
    assert stream.asked_with == []
    assert stream.started == []


def test_there_is_none(stream, tmp_path) -> None:
    line = line_of(stream.import_from(str(tmp_path / "nothing")))
    assert line == f"there is nothing at {tmp_path}/nothing: give the place of a savepoint"


def test_one_that_cannot_be_read_is_reported(stream, foreign) -> None:
    record = Path(foreign) / "savepoint.json"
    record.write_bytes(record.read_bytes()[:-20])
    assert "savepoint.json" in line_of(stream.import_from(foreign))


def test_a_run_that_dagster_would_forget_does_nothing(stream, foreign, monkeypatch) -> None:
    def refuse(_: object) -> None:
        raise dg.Failure("it would be forgotten")

    monkeypatch.setattr(acts, "refuse_temporary_instance", refuse)
    assert line_of(stream.import_from(foreign)) == "it would be forgotten"
    assert stream.asked_with == []


def test_which_savepoint_has_no_default() -> None:
    required = {n for n, f in import_job.ImportForm.model_fields.items() if f.is_required()}
    assert required == {"savepoint"}
    assert all(field.description for field in import_job.ImportForm.model_fields.values())
