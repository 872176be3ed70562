import pytest

from laminar_core.driver.events import GenerationStarted, JobEvent
from laminar_core.driver.reserve import ReserveKeeper
from laminar_core.objectstore.reserve import SLICES
from tests.driver.test_events import EVENTS as EVENTS_AND_JSON
from tests.objectstore.full_disks import SmallDisk
from tests.store.stores import JOB, open_job

EVENTS = [event for event, _ in EVENTS_AND_JSON]
FOLDER = f"{JOB}/retention/reserve/"


def keeper(disk: SmallDisk) -> tuple[ReserveKeeper, list[JobEvent]]:
    seen: list[JobEvent] = []
    return ReserveKeeper(open_job(disk), seen.append), seen


def test_a_driver_holds_space_back_once_it_has_started_and_passes_everything_on():
    disk = SmallDisk(64 << 20)
    keep, seen = keeper(disk)
    for event in EVENTS:
        before = len(disk.list(FOLDER))
        keep(event)
        assert len(disk.list(FOLDER)) == (
            SLICES if isinstance(event, GenerationStarted) else before
        )
    assert seen == EVENTS


def test_a_full_disk_does_not_keep_a_job_from_starting():
    disk = SmallDisk(0)
    keep, seen = keeper(disk)
    started = next(event for event in EVENTS if isinstance(event, GenerationStarted))
    keep(started)
    assert seen == [started]
    assert disk.list(FOLDER) == []


def test_a_listener_that_fails_costs_no_reserve():
    disk = SmallDisk(64 << 20)

    def fail(event: JobEvent) -> None:
        raise ValueError(event)

    started = next(event for event in EVENTS if isinstance(event, GenerationStarted))
    with pytest.raises(ValueError, match="generation-started"):
        ReserveKeeper(open_job(disk), fail)(started)
    assert len(disk.list(FOLDER)) == SLICES
