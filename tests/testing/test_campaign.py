"""Fifty seeds of everything at once; how one is drawn, reported and run again."""

import json
from collections import Counter
from dataclasses import replace
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
from laminar_core.testing.store_disasters import STORE_KINDS

CHUNK = 10
FIRST = (30, 170, 270, 280, 310)
"""Chunks in which every kind of disaster comes to pass, and which are quickly simulated."""
SEEDS = [seed for first in FIRST for seed in range(first, first + CHUNK)]


@cache
def report_of(seed: int) -> SeedReport:
    return simulate_seed(seed)


@pytest.mark.large
@pytest.mark.parametrize("first", FIRST)
def test_every_invariant_holds(first: int) -> None:
    reports = [report_of(seed) for seed in range(first, first + CHUNK)]
    failed = {r.setting.seed: r.violations for r in reports if not r.passed}
    assert failed == {}, "run `laminar simulate --seed S --trace`"


@pytest.mark.large
def test_the_seeds_above_are_worth_something() -> None:
    """Every kind of disaster comes to pass, and checkpoints complete in every mode."""
    hits: Counter[str] = Counter()
    checkpoints: Counter[str] = Counter()
    for seed in SEEDS:
        hits.update(report_of(seed).hits)
        checkpoints.update(report_of(seed).checkpoints)
    assert hits.keys() == KINDS.keys() | STORE_KINDS.keys()
    assert {"aligned", "switched", "unaligned", "aborted", "declined"} <= checkpoints.keys()
    settings = [draw(seed) for seed in range(400)]
    assert {s.scenario for s in settings} == SCENARIOS.keys()
    assert {s.parallelism for s in settings} == {1, 2, 3, 4}


@pytest.mark.parametrize("seed", [9, 12, 33])
def test_equal_seeds_are_equal_runs(seed: int) -> None:
    again = simulate_seed(seed)
    assert again == report_of(seed)
    assert again.trace == report_of(seed).trace


@pytest.mark.large
def test_different_seeds_are_different_runs() -> None:
    assert len({report_of(seed).digest for seed in SEEDS[:20]}) == 20


def test_a_report_says_what_happened() -> None:
    report = next(r for r in map(report_of, SEEDS) if "worker-crash" in r.hits)
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


def test_what_a_seed_stands_for_does_not_depend_on_losses_of_the_store() -> None:
    for seed in SEEDS:
        with_losses, without = draw(seed), draw(seed, losses=())
        assert replace(with_losses, losses=(), restarts_max=without.restarts_max) == without
        assert with_losses.losses or with_losses == without


FOUND = {
    5_088: (13, 21, 0, "a cancelled job failed"),
    6_809: (13, 21, 0, "files of a sleeper after a clock stepped"),
    15_063: (13, 21, 0, "the orphan of a sleeper"),
    16_253: (13, 21, 0, "a registration was lost, and with it the last checkpoint's trigger"),
    373_545_846: (20, 22, 0, "a merge that failed was never tried again"),
    537_351_262: (20, 22, 0, "a trigger that was lost seven times was never sent again"),
    537_350_198: (20, 22, 0, "the campaign had lost a segment, and blamed the job for it"),
    574_352_323: (20, 22, 0, "the campaign had cut a segment, and blamed the job for it"),
    7_310_004_096: (21, 24, 0, "the campaign had cut a manifest, and blamed the audit log for it"),
    7_310_004_194: (
        21,
        24,
        0,
        "a slow worker's slow function took longer than the campaign thought",
    ),
    7_320_000_123: (21, 24, 3, "an action took the last turns, and the job was called dead"),
    7_320_001_244: (21, 24, 3, "a base in an older copy passed for the job"),
    7_320_011_190: (21, 24, 3, "a heartbeat in an empty directory passed for the job"),
    7_320_011_570: (21, 24, 3, "a generation ran whose base was in another store"),
    7_320_013_956: (21, 24, 3, "a sleeper ended the job after its last checkpoint"),
    7_320_014_201: (21, 24, 3, "a file of the restored checkpoint was known to be lost for ever"),
    7_320_005_517: (21, 24, 3, "the record of a start was in another store"),
    7_320_016_767: (21, 24, 3, "the audit log went on after a record of a namesake's"),
    7_330_000_339: (21, 24, 3, "a record followed one of an older copy, which the sleeper read"),
    7_330_008_419: (21, 24, 3, "the place of a record was forgotten, and it was written again"),
    7_330_009_954: (21, 24, 3, "the place of a record was forgotten, and it was written again"),
    7_310_000_544: (20, 22, 0, "what given-up checkpoints left to do held up the last one"),
}
"""Seeds that failed once, with the numbers of scenarios, of kinds of disaster and of losses of the
store that there were then: others would make other runs of them."""


@pytest.mark.large
@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_failed_once_stay_well(seed: int) -> None:
    scenarios_then, kinds_then, losses_then, what_happened = FOUND[seed]
    scenarios = dict(list(SCENARIOS.items())[:scenarios_then])
    setting = draw(seed, scenarios, list(KINDS)[:kinds_then], list(STORE_KINDS)[:losses_then])
    report = simulate_setting(setting, scenarios[setting.scenario])
    assert report.passed, (what_happened, report.violations)


SCENARIOS_THEN, KINDS_THEN, LOSSES_THEN = 21, 24, 3

LOST = {
    262: "a driver claimed a job in an older copy that came while it watched the owner before it",
    325: "the same in an empty directory",
    931: "left-overs were deleted in another store",
    8_200_000_478: "an id was reserved in another store, and used",
    8_200_000_758: "the audit log of another store was named",
    8_200_001_449: "who slept in the midst of an append saw another store, which is excused",
}
"""Seeds that failed once because the store went away."""


@pytest.mark.large
@pytest.mark.parametrize("seed", LOST)
def test_seeds_that_failed_once_for_a_lost_store_stay_well(seed: int) -> None:
    scenarios = dict(list(SCENARIOS.items())[:SCENARIOS_THEN])
    kinds, losses = list(KINDS)[:KINDS_THEN], list(STORE_KINDS)[:LOSSES_THEN]
    setting = draw(seed, scenarios, kinds, losses)
    report = simulate_setting(setting, scenarios[setting.scenario])
    assert set(report.hits) & set(losses), "else this shows nothing"
    assert report.passed, (LOST[seed], report.violations)
