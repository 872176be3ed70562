"""A job that runs in the background of the driver."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from laminar_core.driver.listening import BackgroundListener
from laminar_core.driver.options import JobResult
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import LaminarError
from laminar_core.host.waiting import wait_for_first
from laminar_core.metrics.exporter import MetricsExporter
from laminar_core.pipeline.display import Display
from laminar_core.pipeline.html import problem_html, status_html
from laminar_core.store.job_status import JobStatus


class StreamingJob:
    """A job that runs in the background."""

    def __init__(
        self,
        supervisor: Supervisor,
        listener: BackgroundListener,
        exporter: MetricsExporter | None = None,
        display: Display | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._exporter = exporter
        self._listener = listener
        self._display = display
        self._result: Future[JobResult] = Future()
        self._thread = threading.Thread(target=self._run, name="laminar-supervisor", daemon=True)
        if display is not None:
            with suppress(Exception):  # Like an event that cannot be shown.
                display.start()
        listener.start()
        self._thread.start()

    def _run(self) -> None:
        try:
            try:
                result = self._supervisor.run()
            finally:
                self._tell_the_rest()
        except BaseException as error:  # noqa: BLE001 - it is raised again by ``result``
            self._result.set_exception(error)
        else:
            self._result.set_result(result)

    def _tell_the_rest(self) -> None:
        """Send the last metrics and events before ``result`` returns: the process may end then."""
        if self._exporter is not None:
            self._exporter.close()
        self._listener.close()
        if self._display is not None:
            with suppress(Exception):
                self._display.close()

    def stop(self) -> None:
        """Take a last checkpoint, commit and end. Wait for the end with ``result``."""
        self._supervisor.stop()

    def cancel(self) -> None:
        """End at once; the job can be continued from its newest checkpoint."""
        self._supervisor.cancel()

    def status(self) -> JobStatus:
        """Return what ``laminar status`` shows: driver, newest checkpoint, mode, pins, problems.

        It is read from the store, also after the end. Numbers of rows are as old as the driver's
        last sign of life.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        return self._supervisor.status()

    def _repr_html_(self) -> str:
        """Show the status in a notebook; a store that does not answer is no error there."""
        ended_well = self.done() and self._result.exception() is None
        try:
            return status_html(self.status(), self._result.result() if ended_well else None)
        except LaminarError as error:
            return problem_html(str(error))

    @property
    def listener_failures(self) -> int:
        """The number of events for which the listener raised an exception; the job continued."""
        return self._listener.failures

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self._result.done()

    def result_or_stop(self) -> JobResult:
        """Wait for the end; on an interrupt stop the job, and on a second one cancel it.

        Raises:
            LaminarError: as ``result``.
            KeyboardInterrupt: after the job has ended.
        """
        try:
            return self.result()
        except KeyboardInterrupt:
            self._end_by(self.stop, self.cancel)
            raise

    def _end_by(self, *ways: Callable[[], None]) -> None:
        """Let the job end in the first of these ways, or the next one after an interrupt."""
        for end in ways:
            with suppress(KeyboardInterrupt):
                end()
                with suppress(Exception):  # The interrupt is what the caller hears of.
                    self.result()
                return

    def result(self, timeout_s: float | None = None) -> JobResult:
        """Wait for the end.

        Raises:
            LaminarError: why the job could not be started or failed.
            TimeoutError: it has not ended yet.
        """
        wait_for_first((self._result,), None if timeout_s is None else 1000 * timeout_s)
        if not self._result.done():
            raise TimeoutError(f"the job has not ended after {timeout_s} s, and goes on")
        return self._result.result()
