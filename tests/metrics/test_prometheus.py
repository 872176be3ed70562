"""A scrape over HTTP sees what the board has."""

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from laminar_core.metrics import prometheus
from laminar_core.metrics.board import Board
from laminar_core.metrics.catalogue import METRICS
from laminar_core.metrics.mapping import EventMapping
from laminar_core.metrics.prometheus import PrometheusEndpoint
from tests.metrics.events import completed, failed, operator, progress, running, started


@pytest.fixture
def board() -> Board:
    board, mapping = Board(), EventMapping()
    busy = progress(8, operators={"sums": operator()})
    for event in (started(), running(), busy, completed(), failed(), started(7), running(4_250)):
        board.apply(mapping.changes(event))
    return board


@pytest.fixture
def endpoint(board: Board):
    opened = PrometheusEndpoint.open(board, "payments", "127.0.0.1", 0)
    yield opened
    opened.close()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_a_scrape_has_every_metric_and_the_values_of_the_board(endpoint) -> None:
    families = {f.name: f for f in text_string_to_metric_families(scrape(endpoint.port))}
    assert {f"{m.family}" for m in METRICS} == families.keys()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    job = ("laminar_job", "payments")
    assert samples["laminar_rows_read_total", job] == 8
    assert samples["laminar_job_running", job] == 1
    assert samples["laminar_job_failures_total", ("code", "worker-lost"), job] == 1
    assert samples["laminar_operator_rows_in_total", job, ("operator", "sums")] == 10
    assert samples["laminar_job_recovery_seconds_sum", job] == 0.25
    assert samples["laminar_job_recovery_seconds_count", job] == 1
    assert samples["laminar_job_recovery_seconds_bucket", job, ("le", "0.1")] == 0
    assert samples["laminar_job_recovery_seconds_bucket", job, ("le", "0.25")] == 1
    assert samples["laminar_job_recovery_seconds_bucket", job, ("le", "+Inf")] == 1


def test_names_of_operators_may_have_any_character(board: Board) -> None:
    board.apply(EventMapping().changes(progress(operators={'a"\\\n{}': operator()})))
    opened = PrometheusEndpoint.open(board, "payments", "127.0.0.1", 0)
    try:
        found = list(text_string_to_metric_families(scrape(opened.port)))
    finally:
        opened.close()
    assert 'a"\\\n{}' in {s.labels.get("operator") for f in found for s in f.samples}


def test_a_scraper_that_says_nothing_does_not_keep_others_waiting(endpoint) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port)):
        assert "laminar_job_running" in scrape(endpoint.port)


def test_a_scraper_that_is_cut_off_is_nothing_to_report(
    endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus._BoundedHandler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as silent:
        assert silent.recv(1) == b""
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken_is_an_error_of_the_system(endpoint, board: Board) -> None:
    with pytest.raises(OSError, match="in use"):
        PrometheusEndpoint.open(board, "other", "127.0.0.1", endpoint.port)


def test_a_port_is_free_again_once_it_is_closed(board: Board) -> None:
    first = PrometheusEndpoint.open(board, "payments", "127.0.0.1", 0)
    first.close()
    second = PrometheusEndpoint.open(board, "payments", "127.0.0.1", first.port)
    assert "laminar_job_running" in scrape(second.port)
    second.close()
