"""Serve the metrics to Prometheus over HTTP."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from threading import Thread
from typing import Protocol
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from laminar_core.metrics.board import Board, Distribution, Series
from laminar_core.metrics.catalogue import DURATION_BOUNDS_S, JOB_LABEL, Metric

REQUEST_TIMEOUT_S = 10
"""A scraper that sends nothing for so long is disconnected."""


class BoardCollector(Collector):
    """Reads the board at each scrape."""

    def __init__(self, board: Board, job: str) -> None:
        self._board = board
        self._job = job

    def collect(self) -> Iterable[Family]:
        """Yield every metric, with the values that it has now."""
        for metric, series in self._board.read().items():
            yield self._family(metric, series)

    def _family(self, metric: Metric, series: Series) -> Family:
        names = (JOB_LABEL, *metric.labels)
        match metric.kind:
            case "counter":
                counter = CounterMetricFamily(metric.family, metric.meaning, labels=names)
                for labels, value in _numbers(series):
                    counter.add_metric((self._job, *labels), value)
                return counter
            case "gauge":
                gauge = GaugeMetricFamily(metric.family, metric.meaning, labels=names)
                for labels, value in _numbers(series):
                    gauge.add_metric((self._job, *labels), value)
                return gauge
            case "histogram":
                histogram = HistogramMetricFamily(metric.family, metric.meaning, labels=names)
                for labels, value in series.items():
                    assert isinstance(value, Distribution)
                    histogram.add_metric((self._job, *labels), _buckets(value), value.total)
                return histogram


def _numbers(series: Series) -> Iterable[tuple[tuple[str, ...], float]]:
    for labels, value in series.items():
        assert not isinstance(value, Distribution)
        yield labels, value


def _buckets(values: Distribution) -> list[tuple[str, float]]:
    bounds = [*map(str, DURATION_BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(values.counts), strict=True))


class _Listening(Protocol):
    """The part of the library's HTTP server that is used here."""

    server_port: int

    def shutdown(self) -> None: ...

    def server_close(self) -> None: ...


class PrometheusEndpoint:
    """An HTTP endpoint with the metrics of one job. Each scrape has a thread of its own."""

    def __init__(self, server: _Listening, thread: Thread) -> None:
        self._server = server
        self._thread = thread

    @classmethod
    def open(cls, board: Board, job: str, address: str, port: int) -> "PrometheusEndpoint":
        """Listen on ``address``; port 0 takes any free one.

        Raises:
            OSError: the port is taken, or this machine does not have the address.
        """
        registry = CollectorRegistry()
        registry.register(BoardCollector(board, job))
        server, thread = start_http_server(port, addr=address, registry=registry)
        server.RequestHandlerClass = _BoundedHandler
        return cls(server, thread)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening. A scrape that is under way is not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _BoundedHandler(WSGIRequestHandler):
    """One connection of a scraper."""

    timeout = REQUEST_TIMEOUT_S

    def handle(self) -> None:
        """Answer, unless the scraper goes away or is cut off."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing: a scrape is nothing to report."""
