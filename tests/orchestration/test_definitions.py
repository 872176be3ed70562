"""``dagster dev`` loads the definitions, and loading costs nothing."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import yaml

from laminar_core.orchestration.definitions import defs
from laminar_core.orchestration.streams import ROOT
from laminar_core.resources import laminar_resources

STREAMS = ("payments", "loop", "slippage")


def test_the_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


ASSETS = {
    "source",
    "output",
    "checkpoint",
    "savepoint",
    "deployment",
    "recovery",
    "retention",
    "drill",
    "audit",
    "costs",
}
JOBS = {
    "run",
    "verify",
    "checks",
    "start",
    "recover",
    "rollback",
    "rescale",
    "checkpoint",
    "savepoint",
    "stop",
    "mode",
    "pin",
    "unpin",
    "pause",
    "resume",
    "export_savepoint",
    "import_savepoint",
    "retention",
    "drill",
    "audit",
    "orphans",
    "costs",
}
SCHEDULES = {"retention", "drill", "audit", "orphans", "costs", "checks"}
SENSORS = {
    "checkpoint_reporter",
    "alignment",
    "recovery",
    "standby",
    "source_retention",
    "sink_transactions",
    "run_failures",
    "check_failures",
}


def test_names_that_others_rely_on_stay() -> None:
    """Bookmarks, schedules and run histories hang on these."""
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        f"{stream}/{name}" for stream in STREAMS for name in ASSETS
    }
    assert {job.name for job in defs.jobs} == {f"laminar_{name}" for name in JOBS}
    assert {s.name for s in defs.sensors} == {f"laminar_{name}" for name in SENSORS}
    assert {s.name for s in defs.schedules} == {f"laminar_{name}_schedule" for name in SCHEDULES}


def test_no_resource_has_a_name_that_a_project_may_have_taken() -> None:
    ticking = (*defs.sensors, *defs.schedules)
    needed = {key for each in ticking for key in each.required_resource_keys}
    for job in defs.resolve_all_job_defs():
        needed |= {key for node in job.all_node_defs for key in _needed_by(node)}
    assert needed - {"io_manager"} == laminar_resources("store").keys()


def _needed_by(node: object) -> set[str]:
    return set(node.required_resource_keys) if isinstance(node, dg.OpDefinition) else set()


def test_loading_starts_no_spark_and_touches_no_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    script = (
        "import sys, laminar_core.orchestration.definitions; print('pyspark' in sys.modules, "
        f"__import__('os').path.exists({str(store)!r}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={"LAMINAR_STORE": str(store), "PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "False False\n"


def test_the_instance_keeps_everything_below_build() -> None:
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert settings["storage"]["sqlite"]["base_dir"] == "build/dagster"
    assert settings["local_artifact_storage"]["config"]["base_dir"] == "build/dagster"
    assert settings["compute_logs"]["config"]["base_dir"].startswith("build/dagster/")
