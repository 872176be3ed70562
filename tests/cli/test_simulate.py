"""``laminar simulate`` runs seeds, says which fail and how to see that again."""

import json

import pytest

from laminar_core.cli import simulate as module
from laminar_core.testing.campaign import simulate_seed
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.ledger import LedgerCommitter


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is ever committed, so every seed fails."""
    monkeypatch.setattr(LedgerCommitter, "commit", lambda *_: None)


@pytest.mark.large
def test_seeds_that_are_well_are_summed_up(cli) -> None:
    answer = cli("simulate", "--seeds", "3", "--from", "4")
    assert answer.code == 0
    heading, faults, checkpoints = answer.out.splitlines()
    assert heading.startswith("3 seeds, 0 failed; ")
    assert faults.startswith("faults: ")
    assert "aligned" in checkpoints


def test_json_is_a_line_per_seed_and_one_for_all(cli) -> None:
    *seeds, total = map(json.loads, cli("simulate", "--json", "--seeds", "2").out.splitlines())
    assert [(s["event"], s["seed"], s["passed"]) for s in seeds] == [
        ("seed", 0, True),
        ("seed", 1, True),
    ]
    assert all("trace" not in seed for seed in seeds)
    assert (total["event"], total["seeds"], total["failed"]) == ("summary", 2, [])
    assert total["turns"] == sum(seed["turns"] for seed in seeds)


@pytest.mark.large
def test_one_seed_is_replayed_identically(cli) -> None:
    first, second = (cli("simulate", "--seed", "30", "--trace") for _ in range(2))
    assert first.out == second.out
    assert f"digest {simulate_seed(30).digest:08x}" in first.out
    assert "checkpoint-completed" in first.out
    assert "digest" in cli("simulate", "--seed", "30").out
    assert "checkpoint-completed" not in cli("simulate", "--seed", "30").out


@pytest.mark.usefixtures("broken")
def test_a_seed_that_fails_shows_what_happened_and_how_to_see_it_again(cli) -> None:
    answer = cli("simulate", "--seeds", "2")
    assert answer.code == 1
    assert "seed 0 violates exactly-once: " in answer.out
    assert "again: laminar simulate --seed 0 --trace" in answer.out
    assert "again: laminar simulate --seed 1 --trace" in answer.out
    assert answer.out.count("the last 60 turns") == 1  # The trace of the first one only.
    assert "2 seeds, 2 failed" in answer.out


@pytest.mark.usefixtures("broken")
def test_json_has_the_trace_of_a_seed_that_fails(cli) -> None:
    answer = cli("simulate", "--json", "--seed", "0")
    seed, total = map(json.loads, answer.out.splitlines())
    assert answer.code == 1
    assert seed["violations"][0]["check"] == "exactly-once"
    assert any("checkpoint-completed" in line for line in seed["trace"])
    assert total["failed"] == [0]


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "json"])
def test_an_interruption_sums_up_what_was_done(cli, monkeypatch, words) -> None:
    def interrupted(seeds):
        yield simulate_seed(seeds[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "simulate_seeds", interrupted)
    answer = cli("simulate", *words)
    assert answer.code == 130
    last = answer.out.splitlines()
    assert "1 seeds until it was interrupted" in last[0] or json.loads(last[-1])["interrupted"]


def test_an_error_that_nobody_expects_is_a_violation(cli, monkeypatch) -> None:
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(Disasters, "run", fail)
    answer = cli("simulate", "--seed", "5")
    assert answer.code == 1
    assert "violates no-unexpected-error: RuntimeError at " in answer.out
