"""Export the metrics of a job while it runs: a listener of its events, and up to two outputs.

Nothing here may harm the job. A port that is taken and a collector that is away are one line of
the log. A scrape or an export that is slow keeps only a thread of its own busy.
"""

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from laminar_core.configuration import MetricsOptions
from laminar_core.driver.events import JobEvent, JobListener
from laminar_core.driver.listening import isolated
from laminar_core.host.clock import Clock
from laminar_core.host.extras import needs_extra
from laminar_core.metrics.board import Board
from laminar_core.metrics.mapping import EventMapping
from laminar_core.units import duration_ms

_log = logging.getLogger(__name__)


class Output(Protocol):
    """A running output of the board."""

    def close(self) -> None:
        """End it, within seconds."""
        ...


class MetricsExporter:
    """Takes the events of one job, and keeps the board that the outputs read."""

    def __init__(self) -> None:
        self.board = Board()
        self._mapping = EventMapping()
        self._lock = threading.Lock()
        self._outputs: list[Output] = []

    def take(self, event: JobEvent) -> None:
        """Take one event, from any thread."""
        with self._lock:  # Differences of totals need the events one by one.
            self.board.apply(self._mapping.changes(event))

    def beside(self, listener: JobListener) -> JobListener:
        """Return a listener that passes each event to ``listener``, and takes it as well."""
        take = isolated(self.take)

        def both(event: JobEvent) -> None:
            take(event)
            listener(event)

        return both

    def add(self, output: Output) -> None:
        """Close this output at the end."""
        self._outputs.append(output)

    def close(self) -> None:
        """Send what is left, and end all outputs."""
        for output in self._outputs:
            output.close()
        self._outputs.clear()


def require_metrics(options: MetricsOptions) -> None:
    """Check that what ``options`` ask for is installed.

    Raises:
        MissingExtraError: it is not.
    """
    if not options.is_on:
        return
    with needs_extra("metrics", "metrics"):  # Imported here, because they are optional.
        importlib.import_module("laminar_core.metrics.prometheus")
        importlib.import_module("laminar_core.metrics.otlp")


def open_exporter(
    options: MetricsOptions,
    job: str,
    clock: Clock,
    report: Callable[[str], None] = _log.warning,
) -> MetricsExporter | None:
    """Open the outputs that ``options`` name; None if they name none.

    Raises:
        MissingExtraError: the libraries are not installed.
    """
    require_metrics(options)
    if not options.is_on:
        return None
    exporter = MetricsExporter()
    if options.prometheus_port is not None:
        _open_prometheus(exporter, options, job, report)
    if options.otlp_endpoint is not None:
        from laminar_core.metrics.otlp import OtlpSender  # noqa: PLC0415

        interval_ms = duration_ms(options.otlp_interval)
        sender = OtlpSender(
            exporter.board, job, options.otlp_endpoint, interval_ms, clock.now_ms, report
        )
        sender.start()
        exporter.add(sender)
    return exporter


def _open_prometheus(
    exporter: MetricsExporter, options: MetricsOptions, job: str, report: Callable[[str], None]
) -> None:
    from laminar_core.metrics.prometheus import PrometheusEndpoint  # noqa: PLC0415

    address, port = options.prometheus_address, options.prometheus_port or 0
    try:
        endpoint = PrometheusEndpoint.open(exporter.board, job, address, port)
    except OSError as error:
        report(
            f"metrics cannot be served on {address}:{port} ({error.strerror or error}): the job "
            "runs without them; choose another --prometheus-port"
        )
        return
    exporter.add(endpoint)
    if port == 0:
        report(f"metrics are served on http://{address}:{endpoint.port}/metrics")
