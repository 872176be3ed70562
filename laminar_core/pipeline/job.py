"""A job that runs in the background of the driver."""

import threading
from concurrent.futures import Future, wait

from laminar_core.driver.listening import BackgroundListener
from laminar_core.driver.options import JobResult
from laminar_core.driver.supervisor import Supervisor
from laminar_core.metrics.exporter import MetricsExporter

SIGNAL_DELAY_MAX_S = 0.5
"""Longest delay of a signal handler while the main thread waits for the job.

The system delivers a signal to any thread of the process. Python then runs the handler in the main
thread, but does not wake it: in one endless wait a SIGTERM would be lost.
"""


class StreamingJob:
    """A job that runs in the background."""

    def __init__(
        self,
        supervisor: Supervisor,
        listener: BackgroundListener,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._exporter = exporter
        self._listener = listener
        self._result: Future[JobResult] = Future()
        self._thread = threading.Thread(target=self._run, name="laminar-supervisor", daemon=True)
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

    def stop(self) -> None:
        """Take a last checkpoint, commit and end. Wait for the end with ``result``."""
        self._supervisor.stop()

    def cancel(self) -> None:
        """End at once; the job can be continued from its newest checkpoint."""
        self._supervisor.cancel()

    @property
    def listener_failures(self) -> int:
        """The number of events for which the listener raised an exception; the job continued."""
        return self._listener.failures

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self._result.done()

    def result(self, timeout_s: float | None = None) -> JobResult:
        """Wait for the end.

        Raises:
            LaminarError: why the job could not be started or failed.
            TimeoutError: it has not ended yet.
        """
        while timeout_s is None and not self.done():
            wait((self._result,), SIGNAL_DELAY_MAX_S)
        return self._result.result(timeout_s)
