"""Durations in words become milliseconds, and what makes no sense is refused."""

from datetime import timedelta

import pytest

from laminar_core.checkpoint.coordinator_config import CoordinatorConfig
from laminar_core.errors import ConfigurationError
from laminar_core.pipeline.config import CheckpointConfig, RunConfig, duration_ms
from laminar_core.runtime.restart import ExponentialDelay


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("1 second", 1000),
        ("2 minutes 500 milliseconds", 120_500),
        (timedelta(milliseconds=20), 20),
        ("1500 microseconds", 1),
        ("1 microsecond", 1),
    ],
)
def test_a_duration_is_whole_milliseconds_and_at_least_one(duration, milliseconds: int) -> None:
    assert duration_ms(duration) == milliseconds


def test_the_defaults_take_a_checkpoint_every_ten_seconds() -> None:
    assert CheckpointConfig("store").coordinator_config() == CoordinatorConfig(
        interval_ms=10_000,
        min_pause_ms=0,
        timeout_ms=600_000,
        max_concurrent=1,
        tolerable_failures=3,
    )


def test_every_setting_reaches_the_coordinator() -> None:
    config = CheckpointConfig(
        store="store",
        interval=None,
        min_pause="1 second",
        timeout=timedelta(minutes=1),
        max_concurrent=2,
        tolerable_failures=None,
    )
    assert config.coordinator_config() == CoordinatorConfig(
        interval_ms=None,
        min_pause_ms=1000,
        timeout_ms=60_000,
        max_concurrent=2,
        tolerable_failures=None,
    )


@pytest.mark.parametrize(
    "setting",
    [
        {"interval": "often"},
        {"interval": "0 seconds"},
        {"min_pause": "-1 seconds"},
        {"timeout": ""},
        {"timeout": timedelta(0)},
        {"max_concurrent": 0},
        {"tolerable_failures": -1},
    ],
    ids=str,
)
def test_nonsense_is_refused_before_anything_starts(setting) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CheckpointConfig("store", **setting).coordinator_config()
    assert "\n" not in str(caught.value)


def test_a_run_asks_for_nothing_dangerous_by_default() -> None:
    run = RunConfig()
    assert (run.take_over, run.allow_fresh, run.restore_id) == (False, False, None)
    assert run.transport == "auto"
    assert run.restart == ExponentialDelay()
