"""Two hundred seeds of everything at once; how one is drawn, reported and run again."""

import json
from collections import Counter
from functools import cache

import pytest

from laminar_core.testing.campaign import (
    SeedReport,
    draw,
    simulate_seed,
    simulate_seeds,
    simulate_setting,
)
from laminar_core.testing.disaster_kinds import KINDS
from laminar_core.testing.scenarios import SCENARIOS, windows_job

SEEDS, CHUNK = 200, 10


@cache
def report_of(seed: int) -> SeedReport:
    return simulate_seed(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds(first: int) -> None:
    reports = [report_of(seed) for seed in range(first, first + CHUNK)]
    failed = {r.setting.seed: r.violations for r in reports if not r.passed}
    assert failed == {}, "run `laminar simulate --seed S --trace`"


def test_the_seeds_above_are_worth_something() -> None:
    """Every kind of disaster comes to pass, and checkpoints complete in every mode."""
    hits: Counter[str] = Counter()
    checkpoints: Counter[str] = Counter()
    for seed in range(SEEDS):
        hits.update(report_of(seed).hits)
        checkpoints.update(report_of(seed).checkpoints)
    assert hits.keys() == KINDS.keys()
    assert {"aligned", "switched", "unaligned", "aborted", "declined"} <= checkpoints.keys()
    settings = [draw(seed) for seed in range(SEEDS)]
    assert {s.scenario for s in settings} == SCENARIOS.keys()
    assert {s.parallelism for s in settings} == {1, 2, 3, 4}


@pytest.mark.parametrize("seed", [2, 5, 8])
def test_equal_seeds_are_equal_runs(seed: int) -> None:
    again = simulate_seed(seed)
    assert again == report_of(seed)
    assert again.trace == report_of(seed).trace


def test_different_seeds_are_different_runs() -> None:
    assert len({report_of(seed).digest for seed in range(20)}) == 20


def test_a_report_says_what_happened() -> None:
    report = next(r for r in map(report_of, range(SEEDS)) if "worker-crash" in r.hits)
    assert any("FAULT" in line and "worker-crash" in line for line in report.trace)
    assert any("is killed" in line for line in report.trace)
    assert any("checkpoint-completed" in line for line in report.trace)
    assert report.trace[-60 - 1] == "the last 60 turns:"
    line = json.loads(json.dumps(report.as_dict()))
    assert line["seed"] == report.setting.seed
    assert line["faults"]["worker-crash"] == report.hits["worker-crash"]
    assert report.setting.scenario in line["setting"]


def test_ones_own_job_is_simulated_alike() -> None:
    reports = list(simulate_seeds(range(3), {"mine": windows_job}))
    assert [r.setting.scenario for r in reports] == ["mine"] * 3
    assert all(r.passed for r in reports)


SCENARIOS_THEN, KINDS_THEN = 13, 21
"""So many there were when these seeds were found; others would make other runs of them."""


@pytest.mark.parametrize("seed", [5_088, 6_809, 15_063, 16_253])
def test_seeds_that_failed_once_stay_well(seed: int) -> None:
    """A cancelled job that failed; files of a sleeper after a clock stepped; its orphan; a last
    checkpoint that a worker did not hear of, because its registration was lost."""
    scenarios = dict(list(SCENARIOS.items())[:SCENARIOS_THEN])
    setting = draw(seed, scenarios, list(KINDS)[:KINDS_THEN])
    report = simulate_setting(setting, scenarios[setting.scenario])
    assert report.passed, report.violations
