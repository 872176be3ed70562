"""Representative cases against a real broker, and canaries that the judge has to catch.

``python -m verification brokers --cases 200`` draws more.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.brokers.campaign import CANARIES, CONNECTORS, LOSSES, draw, run
from verification.brokers.cases import EVENTS, LIVES, Case
from verification.brokers.outgoing import DELIVERIES
from verification.brokers.place import Place
from verification.servers.fault_proxy import FaultKind
from verification.servers.kafka_requests import KafkaRequest

pytestmark = [pytest.mark.early, pytest.mark.large]

END = (KafkaRequest.END_TRANSACTION,)
COMMIT = (KafkaRequest.COMMIT_OFFSETS,)
PRODUCE = (KafkaRequest.PRODUCE,)
FETCH = (KafkaRequest.FETCH,)

REPRESENTATIVE = [
    Case(0, "staged", FaultKind.LOST_REPLY, "marker-sent", "lives", END),
    Case(4, "staged", FaultKind.HALF_OPEN, "half-produced", "lives"),
    Case(5, "staged", FaultKind.LOST_REPLY, "taken-over", "sleeps", END),
    Case(6, "staged", "broker-killed", "marker-sent", "lives"),
    Case(10, "transaction", FaultKind.RESET, "half-ended", "dies", PRODUCE),
    Case(11, "transaction", FaultKind.BLACK_HOLE, "described", "sleeps", (), 0.5, rows=1),
    Case(8, "source", FaultKind.BLACK_HOLE, "opened", "dies", (), 1.0, rows=500),
]
OTHERS = [
    Case(1, "staged", FaultKind.LOST_REPLY, "flushed", "lives", COMMIT),
    Case(2, "staged", FaultKind.RESET, "begun", "lives", PRODUCE, rows=2_000),
    Case(3, "staged", FaultKind.BLACK_HOLE, "marker-read", "lives", (), 1.0),
    Case(9, "transaction", FaultKind.LOST_REPLY, "announced", "lives", END),
    Case(7, "source", FaultKind.RESET, "opened", "lives", FETCH, rows=5_000),
]


@pytest.fixture(scope="module")
def place(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(kafka_jars, tmp_path_factory.mktemp("faulty-broker")) as made:
        yield made


# One test for all of them: spread over processes, each would start a broker.
def test_the_output_is_exact_and_the_faults_struck(place: Place, every_case) -> None:
    for case in [*REPRESENTATIVE, *(OTHERS if every_case else ())]:
        verdict = run(place, case)
        assert verdict.is_exact, (case, verdict)
        assert verdict.fired, case
    for name, act in LOSSES.items():
        verdict = act(place)
        assert verdict.is_exact, (name, verdict)


def test_connectors_that_are_wrong_on_purpose_are_caught(place: Place) -> None:
    verdicts = {name: act(place) for name, act in CANARIES.items()}
    assert [name for name, verdict in verdicts.items() if verdict.is_exact] == []
    wrong = {
        name: {key for key in ("lost", "doubled", "foreign") if verdict.as_dict()[key]}
        for name, verdict in verdicts.items()
    }
    assert wrong == {
        "no marker": {"doubled"},
        "marker outside the transaction": {"doubled"},
        "ends some transactions": {"lost"},
        "auto.offset.reset=latest": {"lost"},
        "bare JSON": {"foreign"},
    }


def test_seeds_reach_every_fault_at_every_step_in_every_life() -> None:
    cases = [draw(seed) for seed in range(3_000)]
    assert cases == [draw(case.seed) for case in cases]
    assert {case.connector for case in cases} == set(CONNECTORS)
    for name, delivery in DELIVERIES.items():
        drawn = Counter((c.event, c.step, c.life) for c in cases if c.connector == name)
        possible = len(EVENTS) * len(delivery.steps) * len(LIVES) - len(delivery.steps)
        assert len(drawn) > 0.9 * possible
