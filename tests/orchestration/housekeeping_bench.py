"""A stream in a store, its housekeeping jobs, and the events that they report to Dagster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources import CheckpointStoreResource, DetachedDriver
from laminar_core.resources.names import StreamAsset, asset_key
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.retention.retention_jobs import JOB, START_MS, StoredJob

SPEC = StreamSpec(name=JOB, program=Path("payments.py"))


class Bench:
    """One stream. ``clock`` is that of the jobs; it stands still until a test moves it."""

    def __init__(self, instance: dg.DagsterInstance, folder: Path) -> None:
        self.instance, self.folder = instance, folder
        self.uri = MemoryObjectStore.named("housekeeping").uri
        self.logs = folder / "drivers"
        self.clock = ManualClock(START_MS)
        self.job = StoredJob(open_object_store(self.uri))
        self.tags = {"user": "ann"}

    @property
    def store(self) -> CheckpointStore:
        return self.job.store

    def resources(self) -> dict[str, Any]:
        return {
            "laminar_checkpoints": CheckpointStoreResource(uri=self.uri),
            "laminar_launcher": DetachedDriver(log_directory=str(self.logs)),
        }

    def run(
        self, job: dg.JobDefinition, config: Mapping[str, object] | None = None
    ) -> dg.ExecuteInProcessResult:
        ops = {job.name: {"config": dict(config or {})}}
        return job.execute_in_process(
            {"ops": ops},
            instance=self.instance,
            tags=self.tags,
            resources=self.resources(),
            raise_on_error=False,
        )

    def failure(self, result: dg.ExecuteInProcessResult) -> str:
        """The one line that a run failed with."""
        assert not result.success
        (event,) = (e for e in result.all_events if e.is_step_failure)
        error = event.step_failure_data.user_failure_data
        assert error is not None, event.step_failure_data.error
        assert error.description is not None
        return error.description

    def materialised(self, name: StreamAsset) -> list[dict[str, Any]]:
        """Return the metadata of an asset's materialisations, oldest first."""
        records = self.instance.fetch_materializations(
            asset_key(JOB, name), limit=100, ascending=True
        ).records
        events = [record.asset_materialization for record in records]
        return [plain(event.metadata) for event in events if event is not None]

    def observed(self, name: StreamAsset) -> list[dict[str, Any]]:
        records = self.instance.fetch_observations(
            asset_key(JOB, name), limit=100, ascending=True
        ).records
        events = [record.asset_observation for record in records]
        return [plain(event.metadata) for event in events if event is not None]


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a test compares them; a table is a list of its rows."""
    return {name: _plain(value) for name, value in metadata.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dg.TableMetadataValue):
        return [dict(row.data) for row in value.records]
    return value.value


@contextmanager
def bench_at(folder: Path) -> Iterator[Bench]:
    """A bench with an empty store in memory; ``folder`` is for files."""
    instance = _instance()
    try:
        yield Bench(instance, folder)
    finally:
        instance.wipe()


@cache
def _instance() -> dg.DagsterInstance:
    """One for all tests: what takes longest is to make one."""
    return dg.DagsterInstance.ephemeral()
