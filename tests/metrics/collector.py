"""A collector that takes metrics by OTLP over HTTP, and remembers them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class Collector(ThreadingHTTPServer):
    """Listens on a free port of this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ExportMetricsServiceRequest] = []
        self.paths: list[str] = []
        self.status = 200
        self.dripping = threading.Event()
        """While it is set, answers go on byte by byte."""
        self.stopped = threading.Event()
        self._arrived = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, path: str, body: bytes) -> None:
        with self._arrived:
            self.paths.append(path)
            self.requests.append(ExportMetricsServiceRequest.FromString(body))
            self._arrived.notify_all()

    def wait_for(self, requests: int) -> None:
        """Wait until so many requests have come."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= requests, timeout=30)

    def metrics(self) -> dict[str, Metric]:
        """The metrics of the last request, by name."""
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.add(self.path, body)
        self.send_response(self.server.status)
        drips = self.server.dripping.is_set()
        self.send_header("Content-Length", str(10**6 if drips else 0))
        self.end_headers()
        while drips and self.server.dripping.is_set():
            self.wfile.write(b"x")
            self.server.stopped.wait(0.01)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector for as long as the block runs."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()
