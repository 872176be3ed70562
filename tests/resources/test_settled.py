"""A settled resource takes no value of a run, and keeps what Dagster does for resources."""

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from laminar_core.resources.settled import SettledResource

VARIABLE = "LAMINAR_TEST_STORE"


class Place(SettledResource["Place"]):
    uri: str
    tries: int = 3


@dg.op
def look(context: dg.OpExecutionContext, place: Place) -> None:
    context.add_output_metadata({"uri": place.uri, "tries": place.tries})


@dg.job(executor_def=dg.in_process_executor)
def looking() -> None:
    look()


@dg.sensor(job_name="looking", minimum_interval_seconds=30)
def watching(place: Place) -> dg.SkipReason:
    return dg.SkipReason(place.uri)


DEFINITIONS = dg.Definitions(
    jobs=[looking],
    sensors=[watching],
    resources={"place": Place(uri=dg.EnvVar(VARIABLE))},
)


def test_a_variable_is_read_when_a_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    job = DEFINITIONS.resolve_job_def("looking")
    with pytest.raises(dg.DagsterInvalidConfigError, match=VARIABLE):
        dg.validate_run_config(job)
    for uri in ("/here", "/there"):
        monkeypatch.setenv(VARIABLE, uri)
        (output,) = job.execute_in_process().filter_events(lambda e: e.is_successful_output)
        facts = {k: v.value for k, v in output.event_specific_data.metadata.items()}
        assert facts == {"uri": uri, "tries": 3}


def test_a_sensor_gets_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/here")
    with dg.build_sensor_context(resources=DEFINITIONS.resources or {}) as context:
        assert watching(context) == dg.SkipReason("/here")


def test_no_run_can_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/here")
    config = {"resources": {"place": {"config": {"uri": "/there"}}}}
    with pytest.raises(dg.DagsterInvalidConfigError, match='unexpected config entry "uri"'):
        dg.validate_run_config(DEFINITIONS.resolve_job_def("looking"), config)


def test_its_page_shows_its_values() -> None:
    repository = DEFINITIONS.get_repository_def()
    (shown,) = RepositorySnap.from_def(repository).resources or ()
    assert {field.name for field in shown.config_field_snaps} == {"uri", "tries"}
    assert str(shown.configured_values["uri"]) == f"ResourceConfigEnvVarSnap(name='{VARIABLE}')"
    assert shown.resource_type.endswith(".Place")
    assert repository.get_env_vars_by_top_level_resource() == {VARIABLE: {"place"}}
