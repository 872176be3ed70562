"""Jobs that move a driver: a form that is checked, and turns that are taken."""

from pathlib import Path

import dagster as dg
import pytest

from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.detached import DetachedDriver
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import ACTS_ON_TAG, RECOVERS_TAG, STREAM_TAG

SPEC = StreamSpec(name="payments", program=Path("p.py"))


class Form(ActForm):
    by: int


def test_it_is_carried_out_with_what_was_filled_in(tmp_path) -> None:
    moves: list[Move[Form]] = []
    job = move_job(Group((SPEC,)), "rollback", Form, moves.append, "Go back.")
    resources = {
        "laminar_checkpoints": CheckpointStoreResource(uri=str(tmp_path)),
        "laminar_driver": SparkDriverClient(),
        "laminar_launcher": DetachedDriver(),
    }
    for config, done in (({"by": 2}, True), ({"by": 2, "reason": ""}, False)):
        run_config = {"ops": {"laminar_rollback": {"config": config}}}
        result = job.execute_in_process(run_config, resources=resources, raise_on_error=False)
        assert result.success == done
    assert [(move.form.by, move.spec) for move in moves] == [(2, SPEC)]


class Answering(ManualClock):
    """Ends the other run when somebody has waited for it for a while."""

    def __init__(self, instance: dg.DagsterInstance, other: dg.DagsterRun) -> None:
        super().__init__(SystemClock().now_ms())
        self.instance, self.other, self.waits = instance, other, 0

    def wait_ms(self, duration_ms: float) -> None:
        super().wait_ms(duration_ms)
        self.waits += 1
        if self.waits == 3:
            self.instance.report_run_canceled(self.other)


def waits_for(tmp_path: Path, tags: dict[str, str], launch: str = "detached") -> int:
    """Return how often a move looks until another one of these tags has ended."""
    spec = SPEC.model_copy(update={"launch": launch})
    resources = {
        "laminar_checkpoints": CheckpointStoreResource(uri=str(tmp_path)),
        "laminar_driver": SparkDriverClient(),
        "laminar_launcher": DetachedDriver(),
    }
    group = Group((spec, SPEC.model_copy(update={"name": "orders"})))
    with dg.DagsterInstance.ephemeral() as instance:
        job = move_job(group, "rollback", Form, lambda _: None, "Go back.")
        status = dg.DagsterRunStatus.STARTED
        config = {"ops": {"laminar_rollback": {"config": {"stream": "payments", "by": 1}}}}
        other = instance.create_run_for_job(
            job, tags={**job.tags, **tags}, run_config=config, status=status
        )
        clock = Answering(instance, other)
        ours = move_job(group, "rollback", Form, lambda _: None, "Go back.", clock=clock)
        assert ours.execute_in_process(config, instance=instance, resources=resources).success
        return clock.waits


@pytest.mark.parametrize(
    ("tags", "launch", "waits"),
    [
        ({ACTS_ON_TAG: "payments"}, "detached", 3),
        ({}, "detached", 3),
        ({ACTS_ON_TAG: "orders"}, "detached", 0),
        ({RECOVERS_TAG: "7"}, "detached", 0),
        ({STREAM_TAG: "payments"}, "detached", 0),
        ({ACTS_ON_TAG: "payments"}, "supervised", 0),
    ],
    ids=["same", "not-begun", "another-stream", "automatic", "supervising", "supervised"],
)
def test_moves_of_a_stream_take_turns(
    tmp_path: Path, tags: dict[str, str], launch: str, waits: int
) -> None:
    assert waits_for(tmp_path, tags, launch) == waits
