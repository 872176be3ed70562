"""The store of a project is read when a run needs it, not when definitions are loaded."""

import dagster as dg
import pytest

from laminar_core.orchestration.components import StoreComponent
from laminar_core.resources import CheckpointStoreResource
from tests.orchestration.components.projects import mistake_in, project

YAML = """\
type: laminar_core.orchestration.components.StoreComponent
attributes:
  uri: "{{ env.LAMINAR_STORE }}"
  logs: "{{ context.project_root }}/logs"
"""


def test_the_variable_need_not_be_set_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAMINAR_STORE", raising=False)

    @dg.op
    def where(laminar_checkpoints: CheckpointStoreResource) -> str:
        return laminar_checkpoints.uri

    @dg.job
    def look() -> None:
        where()

    with project(YAML) as (component, defs):
        assert isinstance(component, StoreComponent)
        assert component.values.logs is not None
        assert component.values.logs.endswith("/logs")
        job = dg.Definitions.merge(defs, dg.Definitions(jobs=[look])).resolve_job_def("look")
        with pytest.raises(dg.DagsterInvalidConfigError, match='variable "LAMINAR_STORE"'):
            job.execute_in_process()
        monkeypatch.setenv("LAMINAR_STORE", "s3://bucket/streams")
        assert job.execute_in_process().output_for_node("where") == "s3://bucket/streams"


def test_a_store_has_a_place() -> None:
    found = mistake_in(YAML.replace('uri: "{{ env.LAMINAR_STORE }}"', "url: s3://bucket"))
    assert "attributes.uri" in found
    assert "attributes.url" in found
    assert "defs.yaml:3" in found
    assert "place" not in StoreComponent.get_spec().description
