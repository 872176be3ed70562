"""The factory makes the assets of a stream, which run it, show it and check it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.resources.names import (
    STREAM_TAG,
    asset_key,
    checkpoint_key,
    checkpoint_partitions,
)
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.sensors.observer.checkpoint_reports import (
    report_new_checkpoints,
)
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import JOB, damage

STREAM = JOB
KEY = checkpoint_key(STREAM)
STAND_IN = Path(__file__).with_name("stream_stand_in.py")


class Deployment:
    """One stream in a store of its own, and the Dagster that runs it."""

    def __init__(self, instance: dg.DagsterInstance, uri: str) -> None:
        self.instance, self.uri = instance, uri
        self.store = CheckpointStore.open(uri, STREAM)
        self.last_run: dg.ExecuteInProcessResult | None = None

    def definitions(self, how: str, output: OutputPartitions | None = None) -> dg.Definitions:
        spec = StreamSpec(
            name=STREAM,
            program=STAND_IN,
            arguments={"how": how},
            output_partitions=output,
            description="Three checkpoints.",
            # The store's test helpers are below the root, which is the working directory.
            laminar=(sys.executable, "-c", _RUN_AS_MODULE),
        )
        resources = {
            "laminar_checkpoints": CheckpointStoreResource(uri=self.uri),
            "laminar_driver": SparkDriverClient(jvm_grace_s=0),
            "laminar_launcher": DetachedDriver(),
        }
        return dg.Definitions.merge(laminar_definitions(spec), dg.Definitions(resources=resources))

    def run(self, how: str, output: OutputPartitions | None = None) -> dg.ExecuteInProcessResult:
        job = self.definitions(how, output).resolve_job_def("laminar_run")
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def verify(self, checkpoint_id: int) -> dg.ExecuteInProcessResult:
        job = self.definitions("finishes").resolve_job_def("laminar_verify")
        return job.execute_in_process(
            {"ops": {"laminar_verify": {"config": {"checkpoint_id": checkpoint_id}}}},
            instance=self.instance,
            raise_on_error=False,
        )

    def verdicts(self) -> list[tuple[str, bool]]:
        """Partition and result of each recorded integrity check, newest first."""
        key = dg.AssetCheckKey(KEY, "manifest_integrity")
        records = self.instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
        return [
            (record.partition, record.event.dagster_event.asset_check_evaluation_data.passed)
            for record in records
        ]

    def reported(self) -> list[int]:
        records = self.instance.fetch_materializations(KEY, limit=100, ascending=True).records
        return [int(record.asset_materialization.partition) for record in records]


_RUN_AS_MODULE = (
    "import runpy; runpy.run_module('tests.orchestration.stream_stand_in', run_name='__main__')"
)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Deployment(instance, str(tmp_path / "store"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A stream that has run to its end; for tests that only look."""
    with dg.DagsterInstance.ephemeral() as instance:
        deployment = Deployment(instance, str(tmp_path_factory.mktemp("finished") / "store"))
        deployment.last_run = deployment.run("finishes")
        yield deployment


def test_a_stream_is_a_source_an_output_and_its_checkpoints(deployment) -> None:
    graph = deployment.definitions("finishes").resolve_asset_graph()
    names = {key.path[-1]: graph.get(key) for key in graph.get_all_asset_keys()}
    assert {"source", "output", "checkpoint", "deployment"} <= set(names)
    external = {name for name, node in names.items() if not node.is_executable}
    assert {"source", "checkpoint", "savepoint"} <= external
    assert not {"output", "deployment"} & external
    assert names["checkpoint"].partitions_def == checkpoint_partitions(STREAM)
    assert "manifest_integrity" in {key.name for key in graph.asset_check_keys}


def test_the_lineage_is_the_way_of_the_data(deployment) -> None:
    graph = deployment.definitions("finishes").resolve_asset_graph()
    parents = {
        name: {key.path[-1] for key in graph.get(asset_key(STREAM, name)).parent_keys}
        for name in ("source", "output", "checkpoint", "savepoint")
    }
    assert parents == {
        "source": set(),
        "output": {"source"},
        "checkpoint": {"output"},
        "savepoint": {"checkpoint"},
    }


def test_every_asset_says_whose_it_is_and_what(deployment) -> None:
    graph = deployment.definitions("finishes").resolve_asset_graph()
    for node in map(graph.get, graph.get_all_asset_keys()):
        assert node.group_name == STREAM, node.key
        assert node.owners == ["team:streaming"], node.key
        assert node.kinds, node.key
        assert node.description, node.key


def test_two_streams_live_side_by_side() -> None:
    orders, clicks, bids = (
        StreamSpec(name=name, program=STAND_IN) for name in ("orders", "clicks", "bids")
    )
    both = [laminar_definitions(orders, clicks), laminar_definitions(bids, group="trading")]
    resources = {
        "laminar_checkpoints": CheckpointStoreResource(uri="s"),
        "laminar_driver": SparkDriverClient(),
        "laminar_launcher": DetachedDriver(),
    }
    dg.Definitions.validate_loadable(
        dg.Definitions.merge(*both, dg.Definitions(resources=resources))
    )


def test_a_run_reports_each_checkpoint_and_what_came_of_it(finished) -> None:
    assert finished.last_run.success
    assert finished.reported() == [1, 2, 3]
    [*_, output] = finished.last_run.asset_materializations_for_node("laminar_run")
    facts = {name: output.metadata[name].value for name in ("rows_in", "checkpoints", "outcome")}
    assert facts == {"rows_in": 30, "checkpoints": 3, "outcome": "finished"}


def test_a_stream_whose_output_has_hours_runs_without_a_partition(deployment) -> None:
    result = deployment.run("finishes", OutputPartitions(every="hour", start="2026-01-01"))
    assert result.success
    assert deployment.reported() == [1, 2, 3]
    records = deployment.instance.fetch_materializations(asset_key(STREAM, "output"), limit=9)
    assert records.records == []


def test_a_run_is_found_by_the_name_of_its_stream(finished) -> None:
    run = finished.instance.get_run_by_id(finished.last_run.run_id)
    assert run.tags[STREAM_TAG] == STREAM


def test_the_checkpoint_of_a_killed_driver_is_reported_too(deployment) -> None:
    result = deployment.run("dies")
    assert result.success
    assert deployment.reported() == [1, 2, 3, 4]
    [*_, output] = result.asset_materializations_for_node("laminar_run")
    assert (output.metadata["driver_restarts"].value, output.metadata["generations"].value) == (
        1,
        2,
    )


def test_nothing_is_left_for_the_sensor_after_a_run(finished) -> None:
    emitted = []
    assert report_new_checkpoints(finished.instance, finished.store, emitted.append) == []
    assert emitted == []


def test_a_database_that_is_locked_for_a_moment_costs_neither_the_stream_nor_a_report(
    deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, failures = deployment.instance.add_dynamic_partitions, ["database is locked"] * 2

    def add_later(*arguments: object) -> None:
        if failures:
            raise OSError(failures.pop())
        add(*arguments)

    monkeypatch.setattr(deployment.instance, "add_dynamic_partitions", add_later)
    assert deployment.run("finishes").success
    assert deployment.reported() == [1, 2, 3]


def test_a_second_run_reports_only_its_own_checkpoints(deployment) -> None:
    deployment.run("finishes")
    deployment.run("finishes")
    assert deployment.reported() == [1, 2, 3, 4, 5, 6]


def test_a_refusal_fails_the_run_with_the_drivers_own_words(deployment) -> None:
    result = deployment.run("refuses")
    assert not result.success
    assert "wrong schema: no column merchant" in failure_of(result)


def test_the_newest_checkpoint_is_verified_at_the_end_of_a_run(finished) -> None:
    assert finished.verdicts() == [("0000000003", True)]


def test_a_checkpoint_can_be_verified_on_demand(deployment) -> None:
    deployment.run("finishes")
    assert deployment.verify(2).success
    path = deployment.store.manifests.read(CheckpointId(2)).subtasks[0].segments[0].path
    damage(deployment.store, deployment.store.paths.absolute(path), "rotten")
    damaged = deployment.verify(2)
    assert not damaged.success
    assert path in failure_of(damaged)
    assert deployment.verdicts()[:2] == [("0000000002", False), ("0000000002", True)]


def test_a_checkpoint_that_is_gone_fails_its_verification_in_one_line(deployment) -> None:
    deployment.run("finishes")
    damage(deployment.store, deployment.store.paths.manifest(CheckpointId(2)), "missing")
    assert "no completed checkpoint 2" in failure_of(deployment.verify(2))


def test_a_blocking_check_keeps_what_depends_on_a_damaged_checkpoint_from_running(
    deployment,
) -> None:
    """Goal: the declared check gates, per partition, whatever is put behind a checkpoint."""
    ran: list[str] = []

    @dg.asset(deps=[KEY], partitions_def=checkpoint_partitions(STREAM))
    def restored(context: dg.AssetExecutionContext) -> None:
        ran.append(context.partition_key)

    gated = dg.define_asset_job(
        "gated", dg.AssetSelection.assets(restored) | dg.AssetSelection.checks_for_assets(KEY)
    )
    definitions = dg.Definitions.merge(
        deployment.definitions("finishes"), dg.Definitions(assets=[restored], jobs=[gated])
    )
    deployment.run("finishes")
    path = deployment.store.manifests.read(CheckpointId(2)).subtasks[0].segments[0].path
    damage(deployment.store, deployment.store.paths.absolute(path), "torn")
    for partition in ("0000000002", "0000000003"):
        definitions.resolve_job_def("gated").execute_in_process(
            instance=deployment.instance, partition_key=partition, raise_on_error=False
        )
    assert ran == ["0000000003"]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    return failure.event_specific_data.error.to_string()
