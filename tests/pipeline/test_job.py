"""A job runs in the background, and its end, good or bad, can be asked for."""

import signal
import threading

import pytest

from laminar_core.driver.events import ignore
from laminar_core.driver.listening import BackgroundListener, isolated
from laminar_core.driver.options import JobResult
from laminar_core.errors import ErrorCode, FencedError
from laminar_core.pipeline.job import StreamingJob

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

    def cancel(self) -> None:
        self.told.append("cancel")
        self.end(FencedError(ErrorCode.FENCED, "cancelled"))


def test_a_job_runs_in_a_thread_of_its_own_until_it_ends() -> None:
    job = StreamingJob(running := Running(), BackgroundListener(isolated(ignore)))
    assert not job.done()
    with pytest.raises(TimeoutError):
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
