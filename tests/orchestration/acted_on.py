"""A stream whose driver seems to be this very process, and whose answers are there already."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from laminar_core.orchestration.control.jobs import control_jobs
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import Generation
from laminar_core.records.commands import ControlCommand, ControlOutcome, ControlResult
from laminar_core.records.manifest import GenerationEnd
from laminar_core.resources import CheckpointStoreResource
from laminar_core.resources.names import StreamAsset, StreamJob, asset_key, job_name
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.generations import Generations
from tests.store.stores import JOB, claim

STREAM = JOB
SPEC = StreamSpec(name=STREAM, program=Path("payments.py"))
JOBS = control_jobs(Group((SPEC,)))


class ActedOn:
    """One stream, and the Dagster that acts on it."""

    def __init__(self, instance: dg.DagsterInstance, place: Path) -> None:
        self.instance, self.place = instance, place
        self.uri = str(place / "store")
        self.store = CheckpointStore.open(self.uri, STREAM)
        self.log = ControlLog(self.store.objects, self.store.paths)
        self.generation = claim(self.store)

    def will_answer(self, outcome: ControlOutcome = "completed", **fields: Any) -> None:
        number = len(self.log.numbers()) + 1
        answer = ControlResult(
            outcome=outcome, generation=self.generation, answered_at_ms=1, **fields
        )
        assert self.log.answer(number, answer)

    def ends_when_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The driver has ended when somebody looks whether it has."""
        look = Generations.read_end

        def read_end(generations: Generations, generation: Generation) -> GenerationEnd | None:
            if self.log.numbers():
                generations.end(generation, "stopped", "")
            return look(generations, generation)

        monkeypatch.setattr(Generations, "read_end", read_end)

    def run(
        self, name: StreamJob, config: dict[str, Any], tags: dict[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        resources = {"laminar_checkpoints": CheckpointStoreResource(uri=self.uri)}
        definitions = dg.Definitions(jobs=[JOBS[name]], resources=resources)
        return definitions.resolve_job_def(job_name(name)).execute_in_process(
            instance=self.instance,
            run_config={"ops": {job_name(name): {"config": config}}},
            tags=tags,
            raise_on_error=False,
        )

    def asked(self) -> ControlCommand:
        """The only command that was left."""
        (entry,) = self.log.entries()
        assert entry.command is not None
        return entry.command

    def audited(self) -> list[tuple[str, str, str, str | None]]:
        records = AuditLog(self.store.objects, self.store.paths, lambda: 0).records()
        return [(r.action, r.outcome, r.actor, r.run_id) for r in records]

    def materialized(self, name: StreamAsset) -> dg.AssetMaterialization:
        (record,) = self.instance.fetch_materializations(asset_key(STREAM, name), limit=9).records
        assert record.asset_materialization is not None
        return record.asset_materialization

    def observed(self, name: StreamAsset) -> dg.AssetObservation:
        (record,) = self.instance.fetch_observations(asset_key(STREAM, name), limit=9).records
        assert record.asset_observation is not None
        return record.asset_observation


def line_of(result: dg.ExecuteInProcessResult) -> str:
    """The line with which a failed run ends."""
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    data = failure.step_failure_data
    assert data.user_failure_data is not None, data.error
    return data.user_failure_data.description


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Return the results that the run's page shows."""
    assert result.success
    (output,) = [event for event in result.all_events if event.is_successful_output]
    return {k: v.value for k, v in output.event_specific_data.metadata.items()}
