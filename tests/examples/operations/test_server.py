"""A Dagster of its own is set up like the project's; nothing that it started is left."""

import os
import subprocess
import sys
from pathlib import Path

import yaml
from dagster._core.instance.ref import InstanceRef

from examples.operations.server import end_all, started_for, write_home, write_workspace
from examples.operations.stream import FOLDER_VARIABLE
from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.streams import ROOT

CHILD = "import subprocess, sys; p = subprocess.Popen(['sleep', '60'], start_new_session=True)"
"""Starts a process in a session of its own, says its pid, and ends."""


def test_the_home_has_the_project_s_settings_and_keeps_everything_below_itself(
    tmp_path: Path,
) -> None:
    home = write_home(tmp_path / "home")
    text = (home / "dagster.yaml").read_text()
    assert "build/dagster" not in text
    InstanceRef.from_dir(str(home))
    own, project = yaml.safe_load(text), yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert own["storage"]["sqlite"]["base_dir"] == str(home)
    for name in ("concurrency", "run_queue", "run_monitoring", "sensors", "schedules"):
        assert own[name] == project[name]


def test_the_workspace_has_other_definitions_under_the_same_name(tmp_path: Path) -> None:
    workspace = yaml.safe_load(write_workspace(tmp_path / "w.yaml", "other.module").read_text())
    (target,) = workspace["load_from"]
    assert target["python_module"] == {
        "module_name": "other.module",
        "location_name": "laminar",
        "working_directory": str(ROOT),
    }


def test_processes_are_found_and_ended_also_those_in_other_sessions(tmp_path: Path) -> None:
    """And those of another folder are left alone."""
    mine, other = tmp_path / "mine", tmp_path / "mine-too"
    subprocess.run(
        [sys.executable, "-c", CHILD], env={**os.environ, FOLDER_VARIABLE: str(mine)}, check=True
    )
    with subprocess.Popen(
        ["sleep", "60"], env={**os.environ, FOLDER_VARIABLE: str(other)}
    ) as bystander:
        try:
            assert len(started_for(mine)) == 1
            assert end_all(mine, SystemClock()) == 1
            assert started_for(mine) == []
            assert started_for(other) == [bystander.pid]
        finally:
            bystander.kill()
    assert end_all(mine, SystemClock()) == 0
