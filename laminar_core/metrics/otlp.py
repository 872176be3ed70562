"""Send the metrics to a collector, by OpenTelemetry's protocol over HTTP."""

# Methods of the library take further arguments without types.
# pyright: reportUnknownMemberType=false

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import (
    Metric as Exported,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from laminar_core._version import __version__
from laminar_core.metrics.board import Board, Distribution, Series
from laminar_core.metrics.catalogue import DURATION_BOUNDS_S, JOB_LABEL, Metric
from laminar_core.metrics.changes import Labels

EXPORT_TIMEOUT_S = 5
"""Longest time for one export, with its repetitions. The library applies it to each read of the
answer, so an export whose answer goes on is given up after twice as long.
"""
CLOSE_WAIT_S = 3.0
"""Longest time that the end of a job waits for the last export."""
METRICS_PATH = "/v1/metrics"
THREAD_NAME = "laminar-otlp"

_LIBRARY = logging.getLogger(OTLPMetricExporter.__module__)
_CUMULATIVE = AggregationTemporality.CUMULATIVE


def metrics_data(board: Mapping[Metric, Series], job: str, times: tuple[int, int]) -> MetricsData:
    """Return the values as OpenTelemetry has them.

    ``times`` are the start of the counters and the present, in nanoseconds since 1970.
    """
    exported = [_exported(m, series, job, times) for m, series in board.items() if series]
    scope = InstrumentationScope("laminar", __version__)
    resource = Resource.create({"service.name": "laminar", "service.instance.id": job})
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, exported, "")], "")])


def _exported(metric: Metric, series: Series, job: str, times: tuple[int, int]) -> Exported:
    def attributes(labels: Labels) -> dict[str, str]:
        return {JOB_LABEL: job, **dict(zip(metric.labels, labels, strict=True))}

    points = [(attributes(labels), value) for labels, value in series.items()]
    match metric.kind:
        case "counter":
            data = Sum(_numbers(points, times), _CUMULATIVE, is_monotonic=True)
        case "gauge":
            data = Gauge(_numbers(points, times))
        case "histogram":
            data = Histogram(_distributions(points, times), _CUMULATIVE)
    return Exported(metric.name, metric.meaning, metric.unit, data)


Point = tuple[dict[str, str], float | Distribution]


def _numbers(points: Sequence[Point], times: tuple[int, int]) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(
            attributes=attributes,
            start_time_unix_nano=times[0],
            time_unix_nano=times[1],
            value=value,
        )
        for attributes, value in points
        if not isinstance(value, Distribution)
    ]


def _distributions(points: Sequence[Point], times: tuple[int, int]) -> list[HistogramDataPoint]:
    return [
        HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=times[0],
            time_unix_nano=times[1],
            count=value.count,
            sum=value.total,
            bucket_counts=value.counts,
            explicit_bounds=DURATION_BOUNDS_S,
            min=value.least,
            max=value.greatest,
        )
        for attributes, value in points
        if isinstance(value, Distribution)
    ]


def metrics_url(endpoint: str) -> str:
    """Return where metrics are posted: below an endpoint without a path, the usual one."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + METRICS_PATH


class OtlpSender:
    """Sends the board at intervals, from a thread of its own."""

    def __init__(
        self,
        board: Board,
        job: str,
        endpoint: str,
        interval_ms: float,
        now_ms: Callable[[], int],
        report: Callable[[str], None],
    ) -> None:
        self._board, self._job = board, job
        self._url = metrics_url(endpoint)
        self._interval_s = interval_ms / 1000
        self._now_ms = now_ms
        self._report = report
        self._started_ns = now_ms() * 1_000_000
        self._is_away = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._under_way: _Export | None = None
        self._exporter = OTLPMetricExporter(endpoint=self._url, timeout=EXPORT_TIMEOUT_S)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send once more, and end; gives up if that takes long."""
        self._over.set()
        self._thread.join(CLOSE_WAIT_S)
        self._exporter.shutdown()
        self._thread.join(CLOSE_WAIT_S)

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        """Send the present values; report the first failure of a series, and its end."""
        if self._under_way is not None and self._under_way.is_alive():
            return  # It is reported, and a second one would meet the same collector.
        self._under_way = export = _Export(self._export)
        export.start()
        export.join(2 * EXPORT_TIMEOUT_S)
        is_over = not export.is_alive()
        arrived = is_over and export.arrived
        if arrived and self._is_away:
            self._report(f"metrics are sent to {self._url} again")
        elif not arrived and not self._is_away:
            problem = export.problem if is_over else "its answer does not end"
            said = f" ({problem.splitlines()[0]})" if problem else ""
            self._report(
                f"metrics cannot be sent to {self._url}{said}: the job continues, and it is tried "
                "again at each interval"
            )
        self._is_away = not arrived

    def _export(self) -> bool:
        times = (self._started_ns, self._now_ms() * 1_000_000)
        data = metrics_data(self._board.read(), self._job, times)
        return self._exporter.export(data) is MetricExportResult.SUCCESS


class _Export(threading.Thread):
    """One export, in a thread of its own because it cannot be broken off."""

    def __init__(self, export: Callable[[], bool]) -> None:
        super().__init__(name=THREAD_NAME, daemon=True)
        self._export = export
        self.arrived = False
        self.problem = ""

    def run(self) -> None:
        """Export, and keep what the library says of it."""
        with _QUIET.kept():
            try:
                self.arrived = self._export()
                self.problem = _QUIET.said()
            except Exception as error:  # noqa: BLE001 - whatever it is, the job goes on
                self.problem = f"{type(error).__name__}: {error}"


class _QuietThreads(logging.Filter):
    """Keeps what the library logs in our threads; other records go their usual way.

    The library logs a line for every failed request, and the job reports one for all. A filter is
    asked once for each record, so a record of another thread is written once, whenever our
    exports begin and end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[int, str] = {}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the records of this thread while the block runs."""
        me = threading.get_ident()
        self._said[me] = ""
        _LIBRARY.addFilter(self)
        try:
            yield
        finally:
            del self._said[me]

    def said(self) -> str:
        """Return the first record of this thread in the block, which names the cause."""
        return self._said[threading.get_ident()]

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the text of a record of ours, and let others pass."""
        me = threading.get_ident()
        if me not in self._said:
            return True
        self._said[me] = self._said[me] or record.getMessage()
        return False


_QUIET = _QuietThreads()
