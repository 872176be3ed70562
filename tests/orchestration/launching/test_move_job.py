"""Jobs that move a driver: a form that is checked, and turns that are taken."""

from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.detached import DetachedDriver
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.names import driver_pool

SPEC = StreamSpec(name="payments", program=Path("p.py"))


class Form(ActForm):
    by: int


def test_it_is_carried_out_with_what_was_filled_in(tmp_path) -> None:
    moves: list[Move[Form]] = []
    job = move_job(SPEC, "rollback", Form, moves.append, "Go back.")
    resources = {
        "checkpoints": CheckpointStoreResource(uri=str(tmp_path)),
        "driver": SparkDriverClient(),
        "launcher": DetachedDriver(),
    }
    for config, done in (({"by": 2}, True), ({"by": 2, "reason": ""}, False)):
        run_config = {"ops": {"payments_rollback": {"config": config}}}
        result = job.execute_in_process(run_config, resources=resources, raise_on_error=False)
        assert result.success == done
    assert [(move.form.by, move.spec) for move in moves] == [(2, SPEC)]


@pytest.mark.parametrize(
    ("launch", "pools"), [("detached", {driver_pool("payments")}), ("supervised", set())]
)
def test_moves_take_turns_unless_the_run_stays_for_the_life_of_the_job(launch, pools) -> None:
    spec = SPEC.model_copy(update={"launch": launch})
    job = move_job(spec, "rollback", Form, lambda _: None, "Go back.")
    assert {node.pool for node in job.graph.node_defs if isinstance(node, dg.OpDefinition)} == (
        pools or {None}
    )
