"""A start that cannot be is refused from the store and the pipeline alone; nothing is written."""

from dataclasses import replace

import pytest

from laminar_core.driver.options import JobOptions
from laminar_core.driver.preflight import check_start
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Generation
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.scenarios import loop_job, stateless_job, windows_job
from tests.simulated.savepoint_stories import take
from tests.store.stores import claim, open_job

OPTIONS = JobOptions("payments", "memory://", 2, CoordinatorConfig(interval_ms=10_000))


def refused(store: CheckpointStore, plan=None, **changes: object) -> ConfigurationError:
    before = list(store.objects.list(""))
    with pytest.raises(ConfigurationError) as caught:
        check_start(plan or windows_job(2).plan, replace(OPTIONS, **changes), store, ManualClock())
    assert list(store.objects.list("")) == before
    return caught.value


def test_a_job_that_nobody_owns_may_start() -> None:
    store = open_job()
    check_start(windows_job(2).plan, OPTIONS, store, ManualClock())
    assert list(store.objects.list("")) == []


def test_a_live_owner_is_named() -> None:
    store = open_job()
    claim(store)
    assert refused(store).code is ErrorCode.JOB_OWNED
    check_start(windows_job(2).plan, replace(OPTIONS, take_over=True), store, ManualClock())


def test_another_generation_than_expected_is_refused() -> None:
    error = refused(open_job(), expected_generation=Generation(3))
    assert error.code is ErrorCode.UNEXPECTED_GENERATION


def test_options_that_the_pipeline_does_not_allow_are_refused() -> None:
    overlapping = CoordinatorConfig(interval_ms=10, max_concurrent=2, alignment_timeout_ms=None)
    error = refused(open_job(), loop_job(2).plan, checkpoint=overlapping)
    assert "cannot overlap" in str(error)
    assert refused(open_job(), parallelism=100_000).code is ErrorCode.UNSUPPORTED_PARALLELISM


def test_a_savepoint_of_another_pipeline_is_refused(tmp_path) -> None:
    take(tmp_path / "s")
    store = CheckpointStore(MemoryObjectStore(), "new")
    options = replace(OPTIONS, job="new", from_savepoint=str(tmp_path / "s"))
    with pytest.raises(IncompatibleStateError):
        check_start(stateless_job(2).plan, options, store, ManualClock())


def test_a_savepoint_that_is_not_there_is_refused(tmp_path) -> None:
    error = refused(open_job(), from_savepoint=str(tmp_path / "nowhere"))
    assert error.code is ErrorCode.NO_SUCH_SAVEPOINT
