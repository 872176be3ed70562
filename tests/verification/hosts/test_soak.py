"""A soak draws its faults from a seed, and reports its figures for each kind of fault."""

from itertools import islice

from click.testing import CliRunner

from verification.hosts import soak
from verification.hosts.driver_events import Reaction
from verification.hosts.faults import FaultKind
from verification.hosts.soak import Figures, Hit, draw


def test_the_seed_decides_and_every_kind_comes_once_in_turn() -> None:
    count = len(FaultKind)
    first, second = (list(islice(draw(3), 2 * count)) for _ in range(2))
    assert first == second
    assert first != list(islice(draw(4), 2 * count))
    assert {hit.kind for hit in first[:count]} == {hit.kind for hit in first[count:]}
    assert {hit.kind for hit in first[:count]} == set(FaultKind)
    assert all(1 <= hit.seconds <= 15 for hit in first)
    assert {hit.victim for hit in first} == {0, 1}


def test_figures_have_the_median_and_the_longest_standstill_of_each_kind() -> None:
    figures = Figures(seed=7, exact_rows=12, duration_ms=90_000)
    for standstill_ms in (4_000, 2_000, 9_000):
        hit = Hit(FaultKind.RESET, 0, 1.0)
        figures.hits.append((hit, Reaction(100, "link-broken", 5_000, standstill_ms, 1)))
    found = figures.as_json()
    assert (found["seed"], found["minutes"], found["faults"]) == (7, 1.5, 3)
    assert (found["exact_rows"], found["problem"]) == (12, None)
    assert found["kinds"]["reset"] == {
        "count": 3, "standstill_median_ms": 4_000, "standstill_max_ms": 9_000,
        "generations_ended": 3,
    }  # fmt: skip
    assert found["kinds"]["power-cut"] == {"count": 0}
    assert found["hits"][2]["kind"] == "reset"
    assert found["hits"][2]["code"] == "link-broken"


def test_without_hosts_the_command_says_why(monkeypatch) -> None:
    monkeypatch.setattr(soak, "missing", lambda: "only root may make namespaces")
    ended = CliRunner().invoke(soak.soak, [])
    assert ended.exit_code == 1
    assert "no hosts: only root may make namespaces" in ended.output
