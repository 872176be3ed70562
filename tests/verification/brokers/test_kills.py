"""Drivers and workers die or sleep at a step of a whole job, and canaries that are caught.

``python -m verification kills --cases 40`` draws more.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.brokers.kills import CANARIES, KillCase, draw_kill, run_kill
from verification.brokers.outgoing import DELIVERIES
from verification.brokers.place import Place
from verification.brokers.relay import WORKER_STEPS
from verification.brokers.strikes import Strike

pytestmark = [pytest.mark.early, pytest.mark.large]

REPRESENTATIVE = [
    KillCase(0, "staged", "driver", Strike("marker-sent", "dies", 2)),
    KillCase(4, "transaction", "worker", Strike("written", "sleeps", 2)),
]
OTHERS = [
    KillCase(2, "staged", "worker", Strike("pre-committed", "dies", 2)),
    KillCase(3, "transaction", "driver", Strike("half-ended", "sleeps", 1)),
]


@pytest.fixture(scope="module")
def place(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(kafka_jars, tmp_path_factory.mktemp("broker-of-kills")) as made:
        yield made


# One test for all of them: spread over processes, each would start a broker.
def test_the_output_is_exact_whoever_is_hit(place: Place, tmp_path: Path, every_case) -> None:
    for case in [*REPRESENTATIVE, *(OTHERS if every_case else ())]:
        verdict = run_kill(place, tmp_path, case)
        assert verdict.is_exact, (case, verdict)
        assert verdict.fired, case


def test_a_sink_that_is_wrong_on_purpose_is_caught(place: Place, tmp_path: Path) -> None:
    verdict = run_kill(place, tmp_path, CANARIES["no marker"])
    assert verdict.fired
    assert verdict.doubled


def test_seeds_reach_every_step_and_every_end() -> None:
    cases = [draw_kill(seed) for seed in range(2_000)]
    assert cases == [draw_kill(case.seed) for case in cases]
    for name, delivery in DELIVERIES.items():
        drawn = Counter((c.who, c.strike.step, c.strike.act) for c in cases if c.delivery == name)
        assert len(drawn) == 2 * (len(delivery.steps) + len(WORKER_STEPS))
