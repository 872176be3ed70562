"""A listener that raises, whatever it raises and whenever, costs the job nothing."""

import errno
import logging
import threading

import pytest

from laminar_core.driver.events import (
    CleanUpFailed,
    DataFlowing,
    Finished,
    GenerationFailed,
    JobEvent,
    ProgressMade,
)
from laminar_core.driver.listening import (
    WAITING_MAX,
    BackgroundListener,
    IsolatedListener,
    isolated,
)
from laminar_core.records.actor import LAMINAR
from laminar_core.retention.background import BackgroundRetention
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

FLOWING = DataFlowing(time_ms=1, generation=1)
ERRORS = [
    OSError(errno.ENOSPC, "No space left on device"),
    BrokenPipeError(errno.EPIPE, "Broken pipe"),
    ValueError("I/O operation on closed file"),
    MemoryError(),
    UnicodeEncodeError("ascii", "…", 0, 1, "ordinal not in range"),
    SystemExit(1),
]


class Raises:
    """A listener that raises each time, or for one kind of event."""

    def __init__(self, error: BaseException, kind: type = object) -> None:
        self._error = error
        self._kind = kind
        self.heard: list[object] = []

    def __call__(self, event: object) -> None:
        self.heard.append(event)
        if isinstance(event, self._kind):
            raise self._error


def run_with(listener) -> tuple[Simulation, IsolatedListener]:
    """A job in which a worker dies once."""
    job = windows_job(2)
    simulation = Simulation(job.plan)
    simulation.when(DataFlowing, lambda: simulation.kill_worker(0))
    told = simulation._notify
    wrapped = isolated(lambda event: (told(event), listener(event)))
    simulation._notify = wrapped
    result = simulation.run()
    assert (result.outcome, result.generations) == ("finished", 2)
    job.check()
    return simulation, wrapped


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_job_goes_on_whatever_its_listener_raises(error) -> None:
    listener = Raises(error)
    simulation, wrapped = run_with(listener)
    assert wrapped.failures == len(listener.heard) == len(simulation.events)


@pytest.mark.parametrize(
    "kind", sorted({type(e) for e in run_with(lambda _: None)[0].events}, key=str)
)
def test_every_kind_of_event_may_be_the_one_that_fails(kind) -> None:
    """Goal: each place in the runtime from which events come is covered."""
    listener = Raises(OSError(errno.ENOSPC, "No space left on device"), kind)
    _, wrapped = run_with(listener)
    assert wrapped.failures == sum(isinstance(event, kind) for event in listener.heard) > 0


def test_the_first_failure_is_logged_and_all_are_counted(caplog) -> None:
    listener = isolated(Raises(ERRORS[0]))
    with caplog.at_level(logging.WARNING, logger="laminar_core"):
        for _ in range(3):
            listener(FLOWING)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "the event data-flowing could not be reported (OSError: [Errno 28] No space left on "
        "device): the job continues, and further failures are only counted"
    )
    assert listener.failures == 3


def test_failures_in_several_threads_are_all_counted() -> None:
    listener = isolated(Raises(ERRORS[0]))
    threads = [
        threading.Thread(target=lambda: [listener(FLOWING) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert listener.failures == 800


def test_what_ends_a_process_is_not_held_up() -> None:
    with pytest.raises(ProcessKilledError):
        isolated(Raises(ProcessKilledError("driver")))(FLOWING)


def test_an_isolated_listener_is_not_isolated_again() -> None:
    listener = isolated(print)
    assert isolated(listener) is listener


def test_retention_passes_events_on_to_a_listener_that_raises() -> None:
    listener = Raises(OSError(errno.ENOSPC, "No space left on device"))
    retention = BackgroundRetention(listener, None, LAMINAR, {}, lambda: 0)
    retention(FLOWING)
    retention._notify(CleanUpFailed(time_ms=1, checkpoint_id=1, reason="in a test"))
    finished = Finished(
        time_ms=1, outcome="finished", rows_in=0, rows_out=0, rows_late=0, checkpoints=0
    )
    retention(finished)
    assert [type(event) for event in listener.heard] == [DataFlowing, CleanUpFailed, Finished]


def test_the_supervisor_isolates_whatever_it_is_given() -> None:
    """A raw listener that raises at the end of a generation does not keep the next one away."""
    job = windows_job(2)
    simulation = Simulation(job.plan)
    simulation.when(DataFlowing, lambda: simulation.kill_worker(0))
    told = simulation._notify

    def listener(event: object) -> None:
        told(event)
        if isinstance(event, GenerationFailed):
            raise OSError(errno.EPIPE, "Broken pipe")

    simulation._notify = listener
    assert simulation.run().generations == 2
    job.check()


def progress(at_ms: int) -> ProgressMade:
    return ProgressMade(
        time_ms=at_ms,
        rows_in=0,
        rows_out=0,
        rows_late=0,
        rows_total=None,
        rows_per_s=0.0,
        watermark_us=None,
    )


class Waits:
    """A listener that a reader holds up from its first event on."""

    def __init__(self) -> None:
        self.is_held = threading.Event()
        self.may_go_on = threading.Event()
        self.heard: list[JobEvent] = []

    def __call__(self, event: JobEvent) -> None:
        self.is_held.set()
        self.may_go_on.wait()
        self.heard.append(event)


def test_a_driver_does_not_wait_for_its_listener_and_loses_no_event_but_progress() -> None:
    listener = Waits()
    told = BackgroundListener(isolated(listener))
    told.start()
    told(FLOWING)
    listener.is_held.wait()
    for at_ms in range(2, 2 * WAITING_MAX):
        told(progress(at_ms))
        if not at_ms % 100:
            told(DataFlowing(time_ms=at_ms, generation=1))
    listener.may_go_on.set()
    told.close()
    flowing = [event.time_ms for event in listener.heard if isinstance(event, DataFlowing)]
    assert flowing == [FLOWING.time_ms, *range(100, 2 * WAITING_MAX, 100)]
    heard_ms = [event.time_ms for event in listener.heard]
    assert heard_ms == sorted(heard_ms)
    assert WAITING_MAX < len(heard_ms) < WAITING_MAX + 20


def test_a_listener_in_the_background_that_raises_is_counted() -> None:
    told = BackgroundListener(isolated(Raises(ValueError())))
    told.start()
    told(FLOWING)
    told.close()
    assert told.failures == 1
