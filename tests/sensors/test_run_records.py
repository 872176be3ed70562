"""Which runs a sensor waits for, and for how long it believes what Dagster says of them."""

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from laminar_core.host.clock import SystemClock
from laminar_core.resources.names import ACT_TAG, ACTS_ON_TAG, STREAM_TAG, StreamJob, job_name
from laminar_core.sensors.run_records import HANGS_MS, acting_run, newest_run
from tests.sensors.streams import STREAM

now_ms = SystemClock().now_ms
"""Dagster takes the time of a run from the same clock."""
STARTED = dg.DagsterRunStatus.STARTED
REMOTE_ORIGIN = RemoteJobOrigin(
    RemoteRepositoryOrigin(InProcessCodeLocationOrigin(LoadableTargetOrigin()), "repository"), "job"
)
"""A queued run has one."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def create(
    instance: dg.DagsterInstance,
    name: StreamJob,
    status: dg.DagsterRunStatus = STARTED,
    **tags: str,
) -> dg.DagsterRun:
    @dg.op
    def nothing() -> None: ...

    @dg.job(name=job_name(name))
    def job() -> None:
        nothing()

    return instance.create_run_for_job(
        job, tags={ACT_TAG: name, ACTS_ON_TAG: STREAM} | tags, status=status
    )


@pytest.mark.parametrize(
    "name",
    ["start", "stop", "recover", "rollback", "rescale", "import_savepoint"],
)
def test_what_starts_or_ends_the_driver_is_waited_for(
    instance: dg.DagsterInstance, name: StreamJob
) -> None:
    run = create(instance, name)
    found = acting_run(instance, STREAM, now_ms())
    assert found is not None
    assert (found.run_id, found.job) == (run.run_id, job_name(name))


@pytest.mark.parametrize("name", ["drill", "retention", "mode", "checkpoint", "savepoint", "costs"])
def test_other_acts_are_not(instance: dg.DagsterInstance, name: StreamJob) -> None:
    create(instance, name)
    assert acting_run(instance, STREAM, now_ms()) is None


@pytest.mark.parametrize(
    ("status", "tags"),
    [
        (dg.DagsterRunStatus.SUCCESS, {}),
        (dg.DagsterRunStatus.NOT_STARTED, {}),
        (STARTED, {ACTS_ON_TAG: "slippage"}),
        (STARTED, {STREAM_TAG: STREAM}),
    ],
)
def test_neither_are_runs_that_ended_or_never_began_or_own_the_driver(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus, tags: dict[str, str]
) -> None:
    create(instance, "start", status, **tags)
    assert acting_run(instance, STREAM, now_ms()) is None


@pytest.mark.parametrize(
    "status",
    [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING],
)
def test_a_run_that_waits_or_is_being_terminated_is_under_way(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    run = create(instance, "start", dg.DagsterRunStatus.NOT_STARTED)
    instance.delete_run(run.run_id)
    origin = REMOTE_ORIGIN if status is dg.DagsterRunStatus.QUEUED else None
    instance.run_storage.add_run(run._replace(status=status, remote_job_origin=origin))
    found = acting_run(instance, STREAM, now_ms())
    assert found is not None
    assert found.status == "in progress"


def test_a_run_hangs_when_it_takes_too_long(instance: dg.DagsterInstance) -> None:
    create(instance, "mode")
    soon = newest_run(instance, STREAM, "mode", now_ms() + HANGS_MS // 2)
    late = newest_run(instance, STREAM, "mode", now_ms() + HANGS_MS + 60_000)
    assert soon is not None
    assert late is not None
    assert (soon.hangs, late.hangs) == (False, True)
