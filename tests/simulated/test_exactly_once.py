"""Whatever dies, sleeps or errs, the committed output is that of a sequential program.

Every test is a job, a configuration, an order of events and a kind of disaster; all invariants of
``testing/invariants.py`` are checked. Mixtures: ``tests/testing/test_campaign.py``.
"""

from dataclasses import replace

import pytest

from laminar_core.testing.campaign import Setting, draw, simulate_setting
from laminar_core.testing.disaster_kinds import KINDS
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.store_disasters import STORE_KINDS

NAMES = list(SCENARIOS)
EVERY_KIND = [*KINDS, *STORE_KINDS]


def setting_of(seed: int, *disasters: str) -> Setting:
    """Every job in turn, then with another parallelism."""
    parallelism = 1 + (seed // len(NAMES)) % 3
    scenario = NAMES[seed % len(NAMES)]
    losses = tuple(kind for kind in disasters if kind in STORE_KINDS)
    others = tuple(kind for kind in disasters if kind in KINDS)
    return replace(
        draw(seed), scenario=scenario, parallelism=parallelism, disasters=others, losses=losses
    )


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(3 * len(NAMES)))
def test_an_undisturbed_job_is_exact(seed: int) -> None:
    setting = setting_of(seed)
    report = simulate_setting(setting, SCENARIOS[setting.scenario])
    assert report.violations == ()
    assert (report.generations, dict(report.hits)) == (1, {})


@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_job_survives_each_kind_of_disaster(kind: str, seed: int) -> None:
    setting = setting_of(100 * EVERY_KIND.index(kind) + seed, kind, kind)
    report = simulate_setting(setting, SCENARIOS[setting.scenario])
    assert report.violations == (), setting
