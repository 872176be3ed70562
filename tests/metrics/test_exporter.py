"""A job that exports runs as it would without, whatever becomes of the outputs."""

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from laminar_core.configuration import MetricsOptions
from laminar_core.driver.events import JobEvent, ProgressMade
from laminar_core.host.clock import ManualClock
from laminar_core.metrics import catalogue
from laminar_core.metrics.exporter import MetricsExporter, open_exporter
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from tests.metrics.collector import collecting
from tests.metrics.events import failed, running, started


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def opened(said: list[str]):
    """A function that opens an exporter, which is closed after the test."""
    exporters: list[MetricsExporter] = []

    def opened(**options: object) -> MetricsExporter:
        found = open_exporter(MetricsOptions(**options), "payments", ManualClock(), said.append)
        assert found is not None
        exporters.append(found)
        return found

    yield opened
    for exporter in exporters:
        exporter.close()


def test_nothing_is_exported_unless_it_is_asked_for() -> None:
    assert open_exporter(MetricsOptions(), "payments", ManualClock()) is None


def test_a_free_port_is_named(opened, said: list[str]) -> None:
    opened(prometheus_port=0)
    (line,) = said
    assert line.startswith("metrics are served on http://127.0.0.1:")
    with urllib.request.urlopen(line.rpartition(" ")[2], timeout=10) as answer:
        assert answer.status == 200


def test_a_port_that_is_taken_is_one_line_and_the_job_runs(opened, said: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        exporter = opened(prometheus_port=port)
        exporter.take(started())
    (line,) = said
    assert line.startswith(f"metrics cannot be served on 127.0.0.1:{port} (")
    assert line.endswith("the job runs without them; choose another --prometheus-port")
    assert exporter.board.read()[catalogue.GENERATION] == {(): 1}


def test_an_address_that_this_machine_does_not_have_is_one_line(opened, said: list[str]) -> None:
    opened(prometheus_port=0, prometheus_address="192.0.2.1")
    assert len(said) == 1


def test_the_listener_of_the_job_gets_every_event(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that could not be taken: an error in here is not the job's."""
    seen: list[JobEvent] = []
    exporter = opened(prometheus_port=0)
    listener = exporter.beside(seen.append)
    listener(started())

    def fail(event: JobEvent) -> None:
        raise RuntimeError(event.event)

    monkeypatch.setattr(exporter._mapping, "changes", fail)
    listener(running())
    assert seen == [started(), running()]


def test_a_listener_that_raises_is_the_jobs_own_matter(opened) -> None:
    def fail(event: JobEvent) -> None:
        raise RuntimeError(event.event)

    exporter = opened(prometheus_port=0)
    with pytest.raises(RuntimeError):
        exporter.beside(fail)(failed())
    assert exporter.board.read()[catalogue.RESTARTS] == {(): 1}


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """A job of two workers: an operator is slow in one of them, and the other one dies once."""
    job = SCENARIOS["windows"](2)
    checkpoint = CoordinatorConfig(interval_ms=300, tolerable_failures=None)
    simulation = Simulation(job.plan, parallelism=2, seed=3, checkpoint=checkpoint)
    simulation.paces = {1: 400.0}

    def compute() -> None:
        simulation.drivers[-1].stages[-1].workers[1].when_computing(lambda: 1_500.0)

    simulation.when(ProgressMade, compute)
    simulation.when(ProgressMade, lambda: simulation.kill_worker(0), 8)
    simulation.run_to_end()
    return simulation


def test_a_job_is_seen_alike_by_both_systems(simulation: Simulation, opened, said) -> None:
    with collecting() as collector:
        exporter = opened(prometheus_port=0, otlp_endpoint=collector.url, otlp_interval="1 hour")
        for event in simulation.events:
            exporter.take(event)
        with urllib.request.urlopen(said[0].rpartition(" ")[2], timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        scraped = {s.name for family in families for s in family.samples if s.value}
        exporter.close()
        sent = collector.metrics()
    restarts = sent["laminar.job.restarts"].sum.data_points[0].as_double
    assert restarts == 1
    assert {"laminar_job_restarts_total", "laminar_checkpoints_total"} <= scraped
    assert {m.name for m in catalogue.METRICS if m.prometheus in scraped} <= sent.keys()
    assert all(point.attributes for point in sent["laminar.checkpoints"].sum.data_points)


def test_a_job_has_the_rates_shares_and_queues_of_its_operators(simulation: Simulation) -> None:
    exporter = MetricsExporter()
    shares: set[float] = set()
    for event in simulation.events:
        exporter.take(event)
        shares |= set(exporter.board.read()[catalogue.OPERATOR_BUSY_SHARE].values())
    found = exporter.board.read()
    assert max(shares) > 0.5
    assert found[catalogue.OPERATOR_ROWS_OUT]["in",] >= 120
    busy_s = found[catalogue.OPERATOR_BUSY].values()
    assert sum(each for each in busy_s if isinstance(each, float)) >= 1.5
    assert found[catalogue.OPERATOR_WRITTEN]["in",] > 0
