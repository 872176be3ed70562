"""The reporter is one voice: silent while a run reports, and never repeating itself."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.storage.checkpoint_store import CheckpointStore
from orchestration.definitions import defs
from resources import CheckpointStoreResource
from resources.names import STREAM_TAG
from sensors.checkpoint_reporter import build_checkpoint_reporter
from tests.storage.stores import JOB, claim, complete

NAME = f"{JOB}_checkpoint_reporter"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def uri(tmp_path: Path) -> str:
    store = CheckpointStore.open(str(tmp_path / "store"), JOB)
    claim(store)
    complete(store, 1, 1)
    complete(store, 2, 1)
    return store.objects.uri


def tick(instance: dg.DagsterInstance, uri: str) -> dg.SensorResult:
    resources = {"checkpoints": CheckpointStoreResource(uri=uri)}
    with dg.build_sensor_context(
        instance=instance, sensor_name=NAME, definitions=defs, resources=resources
    ) as context:
        result = build_checkpoint_reporter(JOB)(context)
    for event in result.asset_events:  # What the daemon does with them.
        instance.report_runless_asset_event(event)
    return result


def test_a_tick_reports_and_the_next_one_has_nothing_to_say(instance, uri: str) -> None:
    first, second = tick(instance, uri), tick(instance, uri)
    assert [event.partition for event in first.asset_events] == ["0000000001", "0000000002"]
    assert first.skip_reason.skip_message == "reported checkpoints 1 to 2"
    assert second.asset_events == []
    assert second.skip_reason.skip_message == "no new checkpoints"


def test_the_sensor_is_silent_while_a_run_reports(instance, uri: str) -> None:
    running = instance.create_run_for_job(
        defs.resolve_job_def(f"{JOB}_verify"),
        tags={STREAM_TAG: JOB},
        status=dg.DagsterRunStatus.STARTED,
    )
    result = tick(instance, uri)
    assert result.asset_events == []
    assert running.run_id in result.skip_reason.skip_message
    instance.report_run_failed(running)
    assert len(tick(instance, uri).asset_events) == 2


def test_a_run_of_another_stream_does_not_silence_it(instance, uri: str) -> None:
    instance.create_run_for_job(
        defs.resolve_job_def(f"{JOB}_verify"),
        tags={STREAM_TAG: "slippage"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert len(tick(instance, uri).asset_events) == 2


def test_a_store_that_is_not_there_yet_is_no_failure(instance, tmp_path: Path) -> None:
    assert tick(instance, str(tmp_path / "nothing")).asset_events == []
