"""A stream in YAML is the same as one in Python, and a mistake in it is shown at its line."""

from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration import StreamSpec, laminar_definitions
from laminar_core.orchestration.components import StreamComponent
from laminar_core.resources import laminar_resources
from tests.orchestration.components.projects import mistake_in, project

YAML = """\
type: laminar_core.orchestration.components.StreamComponent
attributes:
  name: totals
  program: totals.py
  workers: "{{ env.WORKERS }}"
  arguments:
    output: "{{ context.project_root }}/out"
    rows: 500
    ratio: 0.5
    loud: true
    password: "{{ env.PASSWORD }}"
  checkpoints:
    interval: 1 second
    max_inflight: 64MiB
    alignment: 5s
  state: {backend: rocksdb, memory: 1GiB}
  spark:
    conf: {spark.executor.memory: 4g}
  alerts:
    checkpoint_age_max: 2 minutes
  schedules: {drill: null, costs: "@daily"}
  kinds: [kafka]
  owner: team:payments
"""


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKERS", "3")
    monkeypatch.delenv("PASSWORD", raising=False)


def test_a_file_says_what_a_spec_says_in_python() -> None:
    with project(YAML) as (component, defs):
        assert isinstance(component, StreamComponent)
        folder = component.spec.program.parent
        assert component.spec == StreamSpec(
            name="totals",
            program=folder / "totals.py",
            workers=3,
            arguments={
                "output": f"{folder.parents[3]}/out",
                "rows": "500",
                "ratio": "0.5",
                "loud": "true",
                "password": dg.EnvVar("PASSWORD"),
            },
            checkpoints={"interval": "1 second", "max_inflight": "64MiB", "alignment": "5s"},
            state={"backend": "rocksdb", "memory": "1GiB"},
            spark={"conf": {"spark.executor.memory": "4g"}},
            alerts={"checkpoint_age_max": "2 minutes"},
            schedules={"drill": None, "costs": "@daily"},
            kinds=frozenset({"kafka"}),
            owner="team:payments",
        )
        assert isinstance(component.spec.arguments["password"], dg.EnvVar)
        assert names_in(defs) == names_in(laminar_definitions(component.spec, group="totals"))


def names_in(defs: dg.Definitions) -> set[str]:
    with_resources = dg.Definitions.merge(defs, dg.Definitions(resources=laminar_resources("s")))
    repository = with_resources.get_repository_def()
    sensors, schedules = repository.sensor_defs, repository.schedule_defs
    return {
        *(each.name for each in (*repository.get_all_jobs(), *sensors, *schedules)),
        *(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()),
    }


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ("1 second", "soon", 13, "attributes.checkpoints.interval"),
        ("64MiB", "64 bananas", 14, "is not a size"),
        ("{spark.executor.memory: 4g}", "5", 18, "attributes.spark.conf"),
        ("  owner: team:payments", "  owner: somebody", 23, "e-mail address, or team:NAME"),
        ("workers:", "workerz:", 5, "attributes.workerz"),
        ("env.WORKERS", "env.MISSING", 5, "the environment variable MISSING is not set"),
        ("env.WORKERS", "env('MISSING')", 5, "the environment variable MISSING is not set"),
        ("loud: true", "loud: [1]", 10, "attributes.arguments.loud"),
    ],
)
def test_a_mistake_is_shown_at_its_line(right: str, wrong: str, line: int, said: str) -> None:
    found = mistake_in(YAML.replace(right, wrong, 1))
    assert said in found
    assert f"defs.yaml:{line}" in found


def test_a_variable_may_have_a_default() -> None:
    yaml = YAML.replace("{{ env.WORKERS }}", "{{ env('MISSING', 4) }}")
    with project(yaml) as (component, _):
        assert isinstance(component, StreamComponent)
        assert component.spec.workers == 4


def test_a_program_of_another_place_stays_there() -> None:
    with project(YAML.replace("totals.py", "/elsewhere/totals.py")) as (component, _):
        assert isinstance(component, StreamComponent)
        assert component.spec.program == Path("/elsewhere/totals.py")


def test_lists_of_types_say_what_it_is() -> None:
    spec = StreamComponent.get_spec()
    assert spec.description == "A streaming job with exactly-once checkpoints, in Spark."
