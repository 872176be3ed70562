"""What ``dagster dev`` loads, and that loading it costs nothing."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from orchestration.definitions import defs
from orchestration.streams import PAYMENTS, ROOT
from orchestration.supervised_run import refuse_temporary_instance


def test_the_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


def test_names_that_others_rely_on_stay() -> None:
    """Bookmarks, schedules and run histories hang on these."""
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "payments/source",
        "payments/output",
        "payments/checkpoint",
    }
    assert {job.name for job in defs.jobs} == {"payments_run", "payments_verify"}
    assert {sensor.name for sensor in defs.sensors} == {"payments_checkpoint_reporter"}


def test_loading_starts_no_spark_and_touches_no_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    script = (
        "import sys, orchestration.definitions; print('pyspark' in sys.modules, "
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


def test_the_command_is_one_that_a_person_could_type() -> None:
    words = PAYMENTS.command("/stores/main")
    assert words[1:5] == ["-m", "laminar_core.cli", "run", str(ROOT / "jobs/payments.py")]
    options = dict(zip(words[11:-1:2], words[12:-1:2], strict=True))
    assert options == {
        "--store": "/stores/main",
        "--job": "payments",
        "--workers": "2",
        "--checkpoint-interval": "1 second",
    }


def test_a_changed_program_is_another_code_version(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text("one")
    spec = type(PAYMENTS)("orders", program)
    before = spec.code_version
    program.write_text("two")
    assert spec.code_version != before


def test_the_instance_keeps_everything_below_build() -> None:
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert settings["storage"]["sqlite"]["base_dir"] == "build/dagster"
    assert settings["local_artifact_storage"]["config"]["base_dir"] == "build/dagster"
    assert settings["compute_logs"]["config"]["base_dir"].startswith("build/dagster/")


def test_a_run_that_dagster_would_forget_is_refused(tmp_path: Path) -> None:
    temporary = tmp_path / ".tmp_dagster_home_x"
    temporary.mkdir()
    with (
        dg.DagsterInstance.local_temp(str(temporary)) as instance,
        pytest.raises(dg.Failure, match="set DAGSTER_HOME"),
    ):
        refuse_temporary_instance(instance)
