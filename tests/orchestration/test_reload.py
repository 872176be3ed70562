"""A project is changed and reloaded, as its owner does it, while a detached driver runs."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget

from examples.operations.client import LOCATION, DagsterClient
from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.streams import ROOT
from laminar_core.resources.drivers.session import kill_session_of
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import is_running
from tests.examples.operations.test_client import InProcess
from tests.store.stores import JOB

pytestmark = [pytest.mark.early, pytest.mark.large]

STAND_IN = Path(__file__).with_name("stream_stand_in.py")
UP_MS_MAX = 120_000
AT_ONCE = {
    "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"}
}
"""A queue would need the daemon."""

DEFINITIONS = """
import sys
import dagster as dg
from laminar_core.orchestration import StreamSpec, laminar_definitions
from laminar_core.resources import DetachedDriver, laminar_resources

stream = StreamSpec(
    name="{job}",
    program="{stand_in}",
    arguments={{"how": "serves"}},
    laminar=(sys.executable, "{stand_in}"),
)
launcher = DetachedDriver(log_directory="{place}/drivers", first_rows_s=0.1)
defs = dg.Definitions.merge(
    laminar_definitions(stream),
    dg.Definitions(
        executor=dg.in_process_executor,
        resources=laminar_resources("{place}/store", launcher=launcher),
    ),
)
"""
ADDED = """
@dg.asset
def report() -> None: ...

defs = dg.Definitions.merge(defs, dg.Definitions(assets=[report]))
"""


class Here(DagsterClient):
    """Asks the webserver's code within this process."""

    def __init__(self, process: WorkspaceProcessContext) -> None:
        super().__init__(0, InProcess(process))
        self.process = process

    def has(self, *key: str) -> bool:
        context = self.process.create_request_context()
        (repository,) = context.get_code_location(LOCATION).get_repositories().values()
        return repository.get_asset_node_snap(dg.AssetKey(key)) is not None


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_a_driver_runs_on_while_its_code_location_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = tmp_path / "team.py"
    program.write_text(DEFINITIONS.format(job=JOB, stand_in=STAND_IN, place=tmp_path))
    store = CheckpointStore.open(str(tmp_path / "store"), JOB)
    target = PythonFileTarget(str(program), None, str(tmp_path), LOCATION)
    home = tmp_path / "home"
    home.mkdir()
    try:
        with (
            dg.DagsterInstance.local_temp(str(home), overrides=AT_ONCE) as instance,
            WorkspaceProcessContext(instance, target) as process,
        ):
            dagster = Here(process)
            started = _start(dagster)
            before = store.generations.summaries()
            assert not dagster.has("report")
            program.write_text(program.read_text() + ADDED)
            process.reload_code_location(LOCATION)
            assert dagster.has("report")
            assert dagster.has(JOB, "output")
            assert dagster.run(started).status == "SUCCESS"
        # Now the old code server and the new one have ended.
        assert store.generations.summaries() == before
        (running,) = before
        assert (running.generation, running.end) == (1, None)
        assert running.claim is not None
        assert is_running(running.claim.owner)
    finally:
        for generation in store.generations.summaries():
            assert generation.claim is None or kill_session_of(generation.claim.owner)


def _start(dagster: Here) -> str:
    config = {"start_from": "fresh", "reason": "a test"}
    run_id = dagster.launch("laminar_start", {"ops": {"laminar_start": {"config": config}}})
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + UP_MS_MAX
    while not dagster.run(run_id).is_over:
        assert clock.monotonic_ms() < deadline_ms
        clock.wait_ms(250)
    assert dagster.run(run_id).status == "SUCCESS", dagster.why_failed(run_id)
    return run_id
