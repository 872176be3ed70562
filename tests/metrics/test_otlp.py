"""A collector gets what the board has, and one that is away is one line."""

import logging
from queue import Queue

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from laminar_core.metrics import otlp
from laminar_core.metrics.board import Board
from laminar_core.metrics.mapping import EventMapping
from laminar_core.metrics.otlp import OtlpSender, metrics_url
from tests.metrics.collector import Collector, collecting
from tests.metrics.events import completed, failed, operator, progress, running, started

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def board() -> Board:
    board, mapping = Board(), EventMapping()
    busy = progress(8, operators={"sums": operator()})
    for event in (started(), running(), busy, completed(), failed(), started(7), running(4_250)):
        board.apply(mapping.changes(event))
    return board


@pytest.fixture
def collector():
    with collecting() as running_collector:
        yield running_collector


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def send(board: Board, said: list[str], monkeypatch: pytest.MonkeyPatch):
    """A function that sends once to an endpoint, as the end of a job does."""
    monkeypatch.setattr(otlp, "EXPORT_TIMEOUT_S", 0.2)

    def send(endpoint: str) -> None:
        sender = OtlpSender(board, "payments", endpoint, HOUR_MS, lambda: NOW_MS, said.append)
        sender.start()
        sender.close()

    return send


def test_a_collector_gets_counters_gauges_and_histograms(send, collector: Collector) -> None:
    send(collector.url)
    metrics = collector.metrics()
    rows = metrics["laminar.rows.read"].sum
    assert (rows.is_monotonic, rows.data_points[0].as_double) == (True, 8)
    assert rows.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (running_now,) = metrics["laminar.job.running"].gauge.data_points
    assert (running_now.as_double, running_now.time_unix_nano) == (1, NOW_MS * 1_000_000)
    recovery = metrics["laminar.job.recovery"]
    (point,) = recovery.histogram.data_points
    assert (recovery.unit, point.count, point.sum, sum(point.bucket_counts)) == ("s", 1, 0.25, 1)
    assert "laminar.source.lag" not in metrics


def test_labels_and_resource_name_the_job(send, collector: Collector) -> None:
    send(collector.url)
    (point,) = collector.metrics()["laminar.operator.rows.in"].sum.data_points
    assert {a.key: a.value.string_value for a in point.attributes} == {
        "laminar_job": "payments",
        "operator": "sums",
    }
    resource = collector.requests[-1].resource_metrics[0].resource
    attributes = {a.key: a.value.string_value for a in resource.attributes}
    assert (attributes["service.name"], attributes["service.instance.id"]) == (
        "laminar",
        "payments",
    )


def test_an_endpoint_without_a_path_gets_the_usual_one(send, collector: Collector) -> None:
    send(collector.url)
    send(f"{collector.url}/")
    send(f"{collector.url}/mine/v1/metrics")
    assert collector.paths == ["/v1/metrics", "/v1/metrics", "/mine/v1/metrics"]
    assert metrics_url("https://host:4318") == "https://host:4318/v1/metrics"


def test_metrics_are_sent_at_each_interval(board: Board, collector: Collector, said) -> None:
    """The collector holds the answer of the first request until the second is due."""
    sender = OtlpSender(board, "payments", collector.url, 1, lambda: NOW_MS, said.append)
    sender.start()
    collector.wait_for(3)
    sender.close()
    assert said == []


@pytest.mark.parametrize("status", [400, 503])
def test_a_collector_that_refuses_is_one_line(send, collector: Collector, said, status) -> None:
    collector.status = status
    send(collector.url)
    (line,) = said
    assert line.startswith(f"metrics cannot be sent to {collector.url}/v1/metrics (")
    assert line.endswith("): the job continues, and it is tried again at each interval")


def test_a_collector_that_is_away_is_one_line_until_it_is_back(
    board: Board, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "EXPORT_TIMEOUT_S", 0.2)
    with collecting() as collector:
        collector.status = 400
        sender = OtlpSender(board, "payments", collector.url, 1, lambda: NOW_MS, said.append)
        sender.start()
        collector.wait_for(3)
        collector.status = 200
        collector.wait_for(6)
        sender.close()
    assert [line.partition(" to ")[0] for line in said] == [
        "metrics cannot be sent",
        "metrics are sent",
    ]


def test_an_answer_without_end_is_one_line_until_it_ends(
    board: Board, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "EXPORT_TIMEOUT_S", 0.5)
    reported: Queue[str] = Queue()
    collector.dripping.set()
    sender = OtlpSender(board, "payments", collector.url, 1, lambda: NOW_MS, reported.put)
    sender.start()
    line = reported.get(timeout=30)
    assert line.startswith(f"metrics cannot be sent to {collector.url}/v1/metrics (its answer does")
    assert len(collector.requests) == 1
    collector.dripping.clear()
    assert reported.get(timeout=30) == f"metrics are sent to {collector.url}/v1/metrics again"
    sender.close()
    assert reported.empty()


def test_an_endpoint_where_nobody_listens_does_not_hold_up_the_end(
    send, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with collecting() as collector:
        gone = collector.url
    send(gone)
    assert len(said) == 1
    assert caplog.records == []


def test_the_library_logs_for_others_as_before(
    board: Board, collector: Collector, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    library = logging.getLogger(OTLPMetricExporter.__module__)
    sender = OtlpSender(board, "payments", collector.url, 1, lambda: NOW_MS, said.append)
    sender.start()
    collector.wait_for(1)
    for _ in range(2_000):
        library.warning("while it sends")
    sender.close()
    library.warning("afterwards")
    found = [record.getMessage() for record in caplog.records]
    assert found == [*["while it sends"] * 2_000, "afterwards"]
