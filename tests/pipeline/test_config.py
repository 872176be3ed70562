"""Durations in words become milliseconds, and what makes no sense is refused."""

from datetime import timedelta

import pytest

from laminar_core.configuration import StateConfig
from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.start_texts import ColumnRename, Rename, ResetFrom
from laminar_core.driver.restart import ExponentialDelay, NoRestart
from laminar_core.errors import ConfigurationError
from laminar_core.pipeline.config import (
    CheckpointConfig,
    RunConfig,
    job_options,
)
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Generation
from laminar_core.protocol.unaligned import UnalignedCheckpointConfig
from laminar_core.records.actor import LAMINAR, Actor
from laminar_core.units import duration_ms, instant_ms
from laminar_core.worker.inflight import SnapshotLimits

STORED = CheckpointConfig(store="store")
NEVER = UnalignedCheckpointConfig(enabled=False)


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
    assert CheckpointConfig(store="store").coordinator_config() == CoordinatorConfig(
        interval_ms=10_000,
        min_pause_ms=0,
        timeout_ms=600_000,
        max_concurrent=1,
        tolerable_failures=3,
        alignment_timeout_ms=30_000,
    )


def test_older_names_mean_the_same() -> None:
    older = {"scrub_bytes_per_second": 7, "alignment_timeout": "5 seconds"}
    config = CheckpointConfig("store", **older)
    assert config == CheckpointConfig(store="store", scrub_rate=7, alignment="5 seconds")
    assert StateConfig.model_validate({"memory_bytes": 7 << 24}) == StateConfig(memory=7 << 24)


def test_every_setting_reaches_the_coordinator() -> None:
    config = CheckpointConfig(
        store="store",
        interval=None,
        min_pause="1 second",
        timeout=timedelta(minutes=1),
        max_concurrent=2,
        tolerable_failures=None,
        unaligned=NEVER,
    )
    assert config.coordinator_config() == CoordinatorConfig(
        interval_ms=None,
        min_pause_ms=1000,
        timeout_ms=60_000,
        max_concurrent=2,
        tolerable_failures=None,
    )


@pytest.mark.parametrize(
    ("unaligned", "timeout_ms"),
    [
        (UnalignedCheckpointConfig(alignment_timeout_threshold_ms=7), 7),
        (UnalignedCheckpointConfig(force_unaligned=True), 0),
        (NEVER, None),
    ],
)
def test_one_number_says_when_barriers_overtake(unaligned, timeout_ms) -> None:
    config = CheckpointConfig(store="store", unaligned=unaligned)
    assert config.coordinator_config().alignment_timeout_ms == timeout_ms


def test_the_limits_of_a_subtask_are_bytes_and_milliseconds() -> None:
    assert CheckpointConfig(store="store").snapshot_limits() == SnapshotLimits(512 << 20, 10_000)
    unaligned = UnalignedCheckpointConfig(max_inflight_buffer_bytes=9)
    config = CheckpointConfig(store="store", unaligned=unaligned, sync_timeout=None)
    assert config.snapshot_limits() == SnapshotLimits(9, None)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"guarantee": "at-least-once"}, "must be 'exactly-once'"),
        ({"max_concurrent": 2}, "alignment to aligned"),
        ({"inflight_compression": "gzip"}, "'lz4' or 'zstd', not 'gzip'"),
    ],
    ids=str,
)
def test_a_refusal_says_what_to_do(setting, said) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        CheckpointConfig(store="store", **setting)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    [
        {"interval": "often"},
        {"interval": "0 seconds"},
        {"min_pause": "-1 seconds"},
        {"timeout": ""},
        {"timeout": timedelta(0)},
        {"sync_timeout": "0 seconds"},
        {"max_concurrent": 0},
        {"tolerable_failures": -1},
    ],
    ids=str,
)
def test_nonsense_is_refused_before_anything_starts(setting) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CheckpointConfig(store="store", **setting)
    assert "\n" not in str(caught.value)


def test_a_run_asks_for_nothing_dangerous_by_default() -> None:
    run = RunConfig()
    assert (run.take_over, run.allow_fresh, run.restore_id) == (False, False, None)
    assert (run.expected_generation, run.actor) == (None, LAMINAR)
    assert run.transport == "auto"
    assert run.restart == ExponentialDelay()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00.250+01:00", 250),
        ("2026-03-01 12:00:00Z", 1_772_366_400_000),
    ],
)
def test_a_time_has_a_zone(text: str, milliseconds: int) -> None:
    assert instant_ms(text) == milliseconds
    assert RunConfig(restore_before=text).restore_before_ms == milliseconds


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01T12:00:00", "", "12"])
def test_a_time_without_a_zone_is_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigurationError, match="ISO 8601 with a zone"):
        RunConfig(restore_before=text)


def test_one_checkpoint_can_be_asked_for_in_one_way() -> None:
    with pytest.raises(ConfigurationError, match="give one"):
        RunConfig(restore_id=3, restore_before="2026-03-01T12:00:00Z")


@pytest.mark.parametrize(
    "other",
    [{"restore_id": 3}, {"restore_before": "2026-03-01T12:00:00Z"}, {"from_savepoint": "file:/s"}],
)
def test_a_reset_of_state_goes_with_no_checkpoint(other: dict) -> None:
    with pytest.raises(ConfigurationError, match="reset_state drops all state"):
        RunConfig(reset_state=("totals",), **other)


def test_a_part_is_reset_with_an_operator_and_a_reason() -> None:
    with pytest.raises(ConfigurationError, match="says how much reset_state resets: give both"):
        RunConfig(reset_from=("sales=beginning",))
    with pytest.raises(ConfigurationError, match="give SOURCE=beginning"):
        RunConfig(reset_state=("totals",), reset_from=("sales",))
    part, checkpoint = {"reset_state": ("totals",), "reset_from": ("sales=beginning",)}, STORED
    with pytest.raises(ConfigurationError, match="reset_from sales=beginning needs a reason"):
        job_options("pipeline", 1, checkpoint, RunConfig(**part))
    config = RunConfig(**part, actor=Actor("ann", reason="to test"))
    assert job_options("pipeline", 1, checkpoint, config).reset_from == (ResetFrom("sales"),)


def test_operators_and_columns_get_other_names() -> None:
    config = RunConfig(rename=("totals=sums", "sums.shop=store"))
    assert job_options("pipeline", 1, STORED, config).renames == (
        Rename("totals", "sums"),
        ColumnRename("sums", "shop", "store"),
    )


@pytest.mark.parametrize(
    "other",
    [{"restore_id": 3}, {"restore_before": "2026-03-01T12:00:00Z"}, {"allow_fresh": True}],
)
def test_a_savepoint_is_a_start_of_its_own(other: dict) -> None:
    with pytest.raises(ConfigurationError, match="from_savepoint cannot be combined with"):
        RunConfig(from_savepoint="/backups/s", **other)


def test_only_a_savepoint_can_be_claimed() -> None:
    assert RunConfig(from_savepoint="/backups/s", claim=True).claim
    with pytest.raises(ConfigurationError, match="only a savepoint can be claimed"):
        RunConfig(claim=True)


def test_a_generation_is_no_negative_number() -> None:
    RunConfig(expected_generation=0)
    with pytest.raises(ConfigurationError, match="greater than or equal to 0, not -1"):
        RunConfig(expected_generation=-1)


def test_how_long_workers_may_take_is_said_as_text_or_as_numbers() -> None:
    run = RunConfig(silence_timeout="10s", start_timeout="1 minute")
    assert run.worker_deadlines() == Deadlines(register_ms=60_000, silence_ms=10_000)
    assert RunConfig().worker_deadlines() == Deadlines()
    numbers = Deadlines(progress_ms=7)
    assert RunConfig(deadlines=numbers).worker_deadlines() is numbers
    with pytest.raises(ConfigurationError, match="deadlines replaces start_timeout"):
        RunConfig(deadlines=numbers, silence_timeout="10s")


def test_everything_about_a_run_reaches_the_runtime() -> None:
    checkpoint = CheckpointConfig(store="store", interval="1 second", inflight_compression="lz4")
    run = RunConfig(
        job="mine",
        restart=NoRestart(),
        take_over=True,
        expected_generation=4,
        restore_before="1970-01-01T00:00:01Z",
        allow_fresh=True,
        actor=Actor("ann", reason="to test", run_id="run-7"),
        deadlines=Deadlines(register_ms=5),
    )
    assert job_options("pipeline", 3, checkpoint, run) == JobOptions(
        job="mine",
        store_uri="store",
        parallelism=3,
        checkpoint=checkpoint.coordinator_config(),
        limits=checkpoint.snapshot_limits(),
        inflight_compression="lz4",
        state=checkpoint.state.options(),
        restart=NoRestart(),
        take_over=True,
        expected_generation=Generation(4),
        allow_fresh=True,
        restore_before_ms=1_000,
        actor=Actor("ann", reason="to test", run_id="run-7"),
        deadlines=Deadlines(register_ms=5),
    )
    others = RunConfig(restore_id=7), RunConfig(from_savepoint="s", claim=True)
    chosen, imported = (job_options("pipeline", 1, checkpoint, other) for other in others)
    assert (chosen.job, chosen.restore_id, chosen.expected_generation) == ("pipeline", 7, None)
    assert (imported.from_savepoint, imported.claim_savepoint) == ("s", True)
    reset = job_options("pipeline", 1, checkpoint, RunConfig(reset_state=("totals",)))
    assert reset.reset_state == ("totals",)


def test_a_number_is_no_restart_strategy() -> None:
    with pytest.raises(ConfigurationError, match="restart: must be an instance of RestartStrategy"):
        RunConfig(restart=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"restart: is a class: pass ExponentialDelay\(\)"):
        RunConfig(restart=ExponentialDelay)  # type: ignore[arg-type]
