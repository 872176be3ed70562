"""The files of a deployment load, and say what the project's own say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.instance.ref import InstanceRef
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

from examples.operations.server import free_port
from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.streams import ROOT
from laminar_core.resources import SparkDriverClient

DEPLOY = ROOT / "deploy"
DOCUMENT = (ROOT / "docs" / "deployment.md").read_text()
UP_MS_MAX = 60_000


def settings(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def test_a_deployment_differs_only_in_where_things_are_kept() -> None:
    kept = {"storage", "local_artifact_storage", "compute_logs"}
    own = {k: v for k, v in settings(ROOT / "dagster.yaml").items() if k not in kept}
    deployed = {k: v for k, v in settings(DEPLOY / "dagster.yaml").items() if k not in kept}
    assert deployed == own


def test_dagster_takes_the_settings_of_a_deployment() -> None:
    """The database itself is not there; its address comes from the environment."""
    ref = InstanceRef.from_dir(str(DEPLOY))
    assert ref.storage_data is not None
    assert ref.storage_data.class_name == "DagsterPostgresStorage"
    assert "DAGSTER_POSTGRES_URL" in ref.storage_data.config_yaml


def test_the_project_folder_is_an_instance(tmp_path: Path) -> None:
    with dg.DagsterInstance.from_ref(
        InstanceRef.from_dir(str(tmp_path), config_dir=str(ROOT))
    ) as instance:
        concurrency = instance.get_concurrency_config()
        assert concurrency.pool_config.default_pool_limit == 1
        assert concurrency.pool_config.pool_granularity.value == "op"
        assert not instance.run_retries_enabled
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled


@pytest.mark.large
@pytest.mark.filterwarnings("ignore:Error loading")  # As long as the server is not up.
def test_the_documented_code_server_serves_the_documented_workspace(tmp_path: Path) -> None:
    """As documented, but for the port: it may be taken here."""
    port = free_port()
    (line,) = re.findall(r"^dagster code-server start .*$", DOCUMENT, re.MULTILINE)
    words = shlex.split(line.replace("4266", str(port)))[1:]
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text((DEPLOY / "workspace.yaml").read_text().replace("4266", str(port)))
    server = subprocess.Popen(
        [sys.executable, "-m", "dagster", *words],
        cwd=ROOT,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert "laminar_start" in served(workspace, tmp_path / "webserver")
    finally:
        server.terminate()
        server.wait(20)


def served(workspace: Path, home: Path) -> set[str]:
    """Names of the jobs of the code location, once its server is up.

    The home is not the server's: two processes that make the tables of one at once would disturb
    each other.
    """
    home.mkdir()
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + UP_MS_MAX
    while True:
        with (
            dg.DagsterInstance.local_temp(str(home)) as instance,
            WorkspaceProcessContext(instance, WorkspaceFileTarget([str(workspace)])) as process,
        ):
            context = process.create_request_context()
            if context.has_code_location("laminar"):
                location = context.get_code_location("laminar")
                (repository,) = location.get_repositories().values()
                return {job.name for job in repository.get_all_jobs()}
            assert clock.monotonic_ms() < deadline_ms, context.get_code_location_error("laminar")
        clock.wait_ms(500)


def test_dagster_waits_longer_than_a_supervised_driver_may_take_to_end() -> None:
    """After that it would show the run as cancelled while its driver still writes."""
    driver = SparkDriverClient()
    graces_s = driver.request_grace_s + driver.stop_grace_s + driver.jvm_grace_s
    for path in (ROOT / "dagster.yaml", DEPLOY / "dagster.yaml"):
        assert graces_s < settings(path)["run_monitoring"]["cancel_timeout_seconds"]
