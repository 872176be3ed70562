"""A job runs in the background, and its end, good or bad, can be asked for."""

import signal
import threading

import pyarrow as pa
import pytest

from laminar_core.connectors import CollectSink
from laminar_core.driver.events import ignore
from laminar_core.driver.listening import BackgroundListener, isolated
from laminar_core.driver.local_cluster import LocalCluster
from laminar_core.driver.options import JobOptions, JobResult
from laminar_core.driver.restart import NoRestart
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import ErrorCode, FencedError, JobFailedError, StorageUnavailable
from laminar_core.host.clock import SystemClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.job import StreamingJob
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.job_status import JobStatus
from laminar_core.testing import MemorySource

RESULT = JobResult("finished", 1, 1, 0, 1, 1, {})
SOON_S = 5.0


class Running:
    """Stands in for a supervisor: runs until a test ends it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.threads: list[str] = []
        self._may_end = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> JobResult:
        self.threads.append(threading.current_thread().name)
        assert self._may_end.wait(SOON_S)
        if self._error is not None:
            raise self._error
        return RESULT

    def end(self, error: BaseException | None = None) -> None:
        self._error = error
        self._may_end.set()

    def stop(self) -> None:
        self.told.append("stop")
        self.end()

    def status(self) -> JobStatus:
        raise StorageUnavailable(ErrorCode.STORE_IO, "no answer")

    def cancel(self) -> None:
        self.told.append("cancel")
        self.end(FencedError(ErrorCode.FENCED, "cancelled"))


def test_a_job_runs_in_a_thread_of_its_own_until_it_ends() -> None:
    job = StreamingJob(running := Running(), BackgroundListener(isolated(ignore)))
    assert not job.done()
    with pytest.raises(TimeoutError, match="the job has not ended after 0 s, and goes on"):
        job.result(timeout_s=0)
    running.end()
    assert job.result(SOON_S) is RESULT
    assert job.done()
    assert job.result(0) is RESULT
    assert running.threads == ["laminar-supervisor"]


def test_stop_and_cancel_reach_the_supervisor() -> None:
    stopped, cancelled = Running(), Running()
    job = StreamingJob(stopped, BackgroundListener(isolated(ignore)))
    job.stop()
    assert job.result(SOON_S) is RESULT
    job = StreamingJob(cancelled, BackgroundListener(isolated(ignore)))
    job.cancel()
    with pytest.raises(FencedError):
        job.result(SOON_S)
    assert (stopped.told, cancelled.told) == (["stop"], ["cancel"])


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_ends_a_job_is_raised_by_result_and_not_lost_in_the_thread(error) -> None:
    job = StreamingJob(running := Running(), BackgroundListener(isolated(ignore)))
    running.end(error)
    with pytest.raises(type(error)):
        job.result(SOON_S)
    assert job.done()


def test_a_signal_that_another_thread_receives_is_handled_while_the_job_is_waited_for() -> None:
    """Goal: a SIGTERM stops a job whichever thread the system delivers it to.

    Only the main thread runs handlers, and the delivery to another thread does not wake it.
    """
    job = StreamingJob(running := Running(), BackgroundListener(isolated(ignore)))
    handled, given_up = threading.Event(), threading.Event()

    def stop(number: int, frame: object) -> None:
        del number, frame
        handled.set()
        job.stop()

    def receive() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not handled.wait(SOON_S):
            given_up.set()
            running.end()

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        receiver = threading.Timer(0.1, receive)  # The main thread waits by then.
        receiver.start()
        assert job.result() is RESULT
        receiver.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not given_up.is_set()


class Shown:
    """A display that records what it was given, and fails at a chosen call."""

    def __init__(self, failing: str = "") -> None:
        self.told: list[str] = []
        self._failing = failing

    def start(self) -> None:
        self._note("start")

    def on_event(self, event: object) -> None:
        del event
        self._note("event")

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.told.append(what)
        if what == self._failing:
            raise OSError(28, "no space left")


@pytest.mark.parametrize("failing", ["", "start", "close"])
def test_a_display_lasts_as_long_as_the_job_and_cannot_harm_it(failing) -> None:
    shown = Shown(failing)
    running = Running()
    job = StreamingJob(running, BackgroundListener(isolated(ignore)), None, shown)
    running.end()
    assert job.result(SOON_S) is RESULT
    assert shown.told == ["start", "close"]


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupt_stops_the_job_before_it_is_raised(interrupts) -> None:
    """Goal: no job is left behind that owns its name; one that does not stop is cancelled."""

    class Interrupted(Running):
        def stop(self) -> None:
            self.told.append("stop")
            if interrupts == 1:
                self.end()
            else:
                interrupt()

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    running = Interrupted()
    job = StreamingJob(running, BackgroundListener(isolated(ignore)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.1, interrupt).start()  # The main thread waits by then.
        with pytest.raises(KeyboardInterrupt):
            job.result_or_stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert running.told == ["stop", "cancel"][:interrupts]
    assert job.done()


def local_job(objects: ObjectStore, function) -> StreamingJob:
    """A job without Spark, whose supervisor, store and worker are real."""
    p = Pipeline("local")
    rows = p.source("in", MemorySource([pa.table({"n": [1, 2, 3]})]))
    rows.map(function, schema=rows.schema).sink("out", CollectSink())
    clock, store = SystemClock(), CheckpointStore(objects, "local")
    options = JobOptions(
        job="local",
        store_uri=objects.uri,
        parallelism=1,
        checkpoint=CoordinatorConfig(interval_ms=None),
        restart=NoRestart(),
    )
    cluster = LocalCluster(store, clock)
    supervisor = Supervisor(cluster, p.plan(), options, store, clock, isolated(ignore))
    return StreamingJob(supervisor, BackgroundListener(isolated(ignore)))


def test_a_job_has_the_status_of_its_store_while_it_runs_and_after_the_end() -> None:
    arrived, may_end = threading.Event(), threading.Event()

    def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrived.set()
        may_end.wait(SOON_S)
        return batch

    job = local_job(MemoryObjectStore(), wait)
    assert arrived.wait(SOON_S)
    running = job.status()
    assert running.driver is not None
    assert (running.job, running.driver.generation, running.driver.state) == ("local", 1, "running")
    assert "<td>running</td>" in job._repr_html_()
    may_end.set()
    job.result(SOON_S)
    ended = job.status()
    assert ended.driver is not None
    assert ended.driver.outcome == "finished"
    assert ended.checkpoint is not None
    html = job._repr_html_()
    assert "<td>finished</td>" in html
    assert "<th>rows in</th><td>3</td>" in html


def test_a_job_that_failed_is_shown_with_its_reason() -> None:
    def fail(_: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("<seven>")

    job = local_job(MemoryObjectStore(), fail)
    with pytest.raises(JobFailedError):
        job.result(SOON_S)
    html = job._repr_html_()
    assert "failed: worker 0: operator map-1: ValueError: &lt;seven&gt; (" in html


def test_a_store_that_does_not_answer_is_shown_as_a_line() -> None:
    job = StreamingJob(running := Running(), BackgroundListener(isolated(ignore)))
    with pytest.raises(StorageUnavailable):
        job.status()
    assert job._repr_html_() == "<p>no answer</p>"
    running.end()
    job.result(SOON_S)
