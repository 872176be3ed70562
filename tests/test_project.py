"""A project that Dagster's own command makes, with the wheel installed, and streams added to it."""

import json
import sys
from pathlib import Path

import pytest

from tests.wheels import call, quiet_dagster

pytestmark = pytest.mark.large

OWN_RESOURCES = """
import dagster as dg

class Keys(dg.ConfigurableResource):
    of: str

OWN = {name: Keys(of=f"own {name}") for name in ("checkpoints", "driver", "launcher")}
"""
DEFINITIONS = """
from pathlib import Path
import dagster as dg
from laminar_core.orchestration import StreamSpec, laminar_definitions
from laminar_core.resources import laminar_resources
from resources.own import OWN, Keys

HERE = Path(__file__).parent

@dg.asset
def report(checkpoints: Keys, driver: Keys, launcher: Keys) -> list[str]:
    return [checkpoints.of, driver.of, launcher.of]

SECRET = {"password": dg.EnvVar("PASSWORD_OF_ORDERS")}

@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=HERE),
        laminar_definitions(StreamSpec(name="orders", program=HERE / "o.py", arguments=SECRET)),
        dg.Definitions(assets=[report], resources=OWN),
    )
"""
COMPONENTS = """
type: laminar_core.orchestration.components.StreamComponent
attributes:
  name: totals
  program: totals.py
---
type: laminar_core.orchestration.components.StoreComponent
attributes:
  uri: "{{ env.STORE_OF_SHOP }}"
"""
LOOK = """
import json, sys, warnings
from pathlib import Path
import dagster as dg
from click.testing import CliRunner
from dagster_dg_cli.cli import create_dg_cli
import laminar_core, shop.definitions

def run(*words):
    return CliRunner().invoke(create_dg_cli(), words).output

def problem_of(defs, job):
    try:
        defs.resolve_job_def(job).execute_in_process()
    except dg.DagsterInvalidConfigError as error:
        return str(error)

if __name__ == "__main__":
    defs = shop.definitions.defs()
    dg.Definitions.validate_loadable(defs)
    yaml = Path("src/shop/defs/totals/defs.yaml")
    listed, good = run("list", "components", "--json"), run("check", "yaml")
    yaml.write_text(yaml.read_text().replace("name:", "nam:"))
    json.dump({
        "from": laminar_core.__file__,
        "jobs": [job.name for job in defs.resolve_all_job_defs()],
        "report": defs.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey("report")]).output_for_node("report"),
        "unset": problem_of(defs, "totals_checkpoint"),
        "components": listed, "good": good, "bad": run("check", "yaml"),
    }, sys.stdout)
"""


@pytest.fixture(scope="module")
def found(clean_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Facts that a program finds in a project; variables that it names are not set."""
    place = tmp_path_factory.mktemp("team")
    make = Path(sys.executable).with_name("create-dagster")
    call(make, "project", "shop", "--no-uv-sync", cwd=place, **quiet_dagster(place))
    project = place / "shop"
    source = project / "src"
    (source / "resources").mkdir()
    (source / "resources" / "own.py").write_text(OWN_RESOURCES)
    (source / "shop" / "definitions.py").write_text(DEFINITIONS)
    (source / "shop" / "defs" / "totals").mkdir()
    (source / "shop" / "defs" / "totals" / "defs.yaml").write_text(COMPONENTS)
    (project / "look.py").write_text(LOOK)
    seen = call(clean_python, "look.py", cwd=project, PYTHONPATH=source, **quiet_dagster(place))
    return json.loads(seen.splitlines()[-1])


def test_a_project_that_dagster_makes_takes_streams_of_both_kinds(found: dict) -> None:
    assert "clean" in found["from"]  # The wheel's, not the checkout's.
    assert {"laminar_start", "totals_start"} <= set(found["jobs"])


def test_a_project_keeps_its_own_resources_and_their_names(found: dict) -> None:
    assert found["report"] == ["own checkpoints", "own driver", "own launcher"]


def test_the_components_are_listed_and_checked(found: dict) -> None:
    assert "laminar_core.orchestration.components.StreamComponent" in found["components"]
    assert "laminar_core.orchestration.components.StoreComponent" in found["components"]
    assert "All component YAML validated successfully" in found["good"]
    assert "'name' is a required property" in found["bad"]
    assert "defs.yaml:3" in found["bad"]


def test_a_run_names_the_variable_that_is_missing(found: dict) -> None:
    assert "STORE_OF_SHOP" in found["unset"]
