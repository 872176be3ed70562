"""How long checkpoints can be restored: what is warned of, when, and what helps."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from laminar_core.records.retention import PinRecord
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import KnownRun
from laminar_core.sensors.source_retention.decision import (
    Restorable,
    SourceFacts,
    decide_source_retention,
    read_source_facts,
)
from laminar_core.sensors.source_retention.sensor import (
    SourceCursor,
    build_source_retention_sensor,
)
from laminar_core.store.pins import Pins
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.sensors.streams import OBJECTS, STREAM, Job, Ticks, config_of, stored_job

HOUR_MS = 3_600_000
POLICY = AlertPolicy(source_keeps="1 day", source_margin="6 hours")
NOW_MS = 1_000 * HOUR_MS


def taken(checkpoint_id: int, hours_ago: float, behind: float = 0, **known: bool) -> Restorable:
    at_ms = NOW_MS - round(hours_ago * HOUR_MS)
    return Restorable(checkpoint_id, at_ms, at_ms - round(behind * HOUR_MS), **known)


def facts(*restorable: Restorable, **known: object) -> SourceFacts:
    return replace(SourceFacts(NOW_MS, restorable), **known)


@pytest.mark.parametrize(
    ("newest", "severity", "asks"),
    [
        (taken(9, 0.01), None, False),
        (taken(9, 17.9), None, False),
        (taken(9, 18.1), "warning", True),
        (taken(9, 24.1), "error", True),
        (taken(9, 0.01, behind=17.9), None, False),
        (taken(9, 0.01, behind=18.1), "warning", False),  # Another one is no help.
        (taken(9, 0.01, behind=30), "error", False),
    ],
)
def test_the_newest_checkpoint(newest: Restorable, severity: str | None, asks: bool) -> None:  # noqa: FBT001
    verdict = decide_source_retention(facts(newest), POLICY)
    assert [found.severity for found in verdict.incidents] == ([severity] if severity else [])
    assert (verdict.ask_for is not None) == asks


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"not_running": "generation 3 stopped"}, "no checkpoint can be taken: generation 3"),
        ({"request": KnownRun("r1", "j", "failed", 60_000)}, "run r1 was to take a checkpoint"),
    ],
)
def test_nobody_is_asked_in_vain(known: dict[str, object], why: str) -> None:
    verdict = decide_source_retention(facts(taken(9, 20), **known), POLICY)
    assert verdict.ask_for is None
    assert why in verdict.line


def test_a_run_before_the_newest_checkpoint_is_no_obstacle() -> None:
    earlier = KnownRun("r1", "j", "succeeded", 21 * HOUR_MS)
    assert decide_source_retention(facts(taken(9, 20), request=earlier), POLICY).ask_for


def test_older_ones_are_listed_and_pinned_ones_are_worth_a_warning() -> None:
    older = (taken(8, 10), taken(7, 20, pinned=True), taken(6, 21), taken(5, 30, pinned=True))
    verdict = decide_source_retention(facts(taken(9, 1), *older), POLICY)
    assert verdict.line.endswith(
        "older ones: 7 (pinned) expires in 4.0 h, 6 expires in 3.0 h, 5 (pinned) expired 6.0 h ago"
    )
    assert [f.cause for f in verdict.incidents] == [
        "source-retention:pinned:7:False",
        "source-retention:pinned:5:True",
    ]


def test_without_checkpoints_nothing_is_needed() -> None:
    assert decide_source_retention(facts(), POLICY).incidents == ()


# --- the sensor -----------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.clock = ManualClock(job.clock.now_ms() - 60_000)  # Before any run is created.
    job.claim()
    job.beat()
    job.complete()
    return job


@pytest.fixture
def ticks(job: Job) -> Iterator[Ticks]:
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = build_source_retention_sensor({STREAM: POLICY}, job.clock)
        yield Ticks(instance, sensor, job.store.objects.uri)


def test_a_checkpoint_is_asked_for_once(job: Job, ticks: Ticks) -> None:
    now_ms = job.clock.now_ms()
    left_h = (read_source_facts(job.store, now_ms).restorable[0].oldest_row_ms - now_ms) / HOUR_MS
    assert left_h < -1  # Its watermark is long ago.
    job.clock.wait_ms(20 * HOUR_MS)
    assert ticks.tick().startswith(f"{STREAM}:source:1:")
    assert "reads expires at the source" in config_of(ticks.runs[0])["reason"]
    assert "was to take a checkpoint: in progress" in ticks.tick()
    assert len(ticks.runs) == 1


def test_pins_are_read_from_the_store(job: Job, ticks: Ticks) -> None:
    record = PinRecord(checkpoint_id=1, name="audit", actor="ada", reason="why", created_at_ms=1)
    Pins(job.store).pin(record)
    job.complete()
    found = read_source_facts(job.store, job.clock.now_ms())
    assert [(r.checkpoint_id, r.pinned) for r in found.restorable] == [(2, False), (1, True)]
    assert "older ones: 1 (pinned) expired" in ticks.tick()


def test_after_the_end_of_all_input_nothing_is_read_again(job: Job) -> None:
    newest = job.complete(kind=CheckpointKind.FINAL)
    found = read_source_facts(job.store, job.clock.now_ms())
    assert newest not in [each.checkpoint_id for each in found.restorable]


def test_a_source_that_forgets_nothing_needs_nothing(job: Job, ticks: Ticks) -> None:
    ticks.sensor = build_source_retention_sensor({STREAM: AlertPolicy()}, job.clock)
    assert ticks.tick() == "the source keeps its rows for ever (source_keeps)"


def test_a_source_that_knows_its_headroom_is_reported_without_a_setting(
    job: Job, ticks: Ticks
) -> None:
    ticks.sensor = build_source_retention_sensor({STREAM: AlertPolicy()}, job.clock)
    numbers = SourceNumbers(
        lag_rows=9, headroom_checkpoint_id=1, headroom_rows=5, headroom_seconds=7_200
    )
    job.beat(payments=numbers)
    line = "checkpoint 1, the oldest, can be restored for at least 2.0 hours"
    assert ticks.tick().startswith(line)
    cursor = SourceCursor.read(ticks.cursor)
    assert cursor.told == ("source-headroom:payments:expiring",)
    assert cursor.lags.least["payments"].rows == 9


def test_the_line_has_what_the_user_says_and_what_the_source_knows(job: Job, ticks: Ticks) -> None:
    numbers = SourceNumbers(headroom_checkpoint_id=1, headroom_rows=-5)
    job.beat(payments=numbers)
    job.complete()
    ticks.tick()
    assert "source-headroom:payments:lost" in SourceCursor.read(ticks.cursor).told
    assert ticks.tick().endswith("cannot be restored: payments has deleted 5 rows")


def test_a_cursor_of_an_older_version_is_read() -> None:
    assert SourceCursor.read('{"told": ["x"]}').told == ("x",)


def test_a_store_that_is_down_skips_the_tick(
    job: Job, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = FaultyStore(job.store.objects, Fault("get", Effect.FAIL, last=1))
    monkeypatch.setitem(OBJECTS, ticks.uri, down)
    ticks.cursor = before = '{"told": ["x"]}'
    assert ticks.tick().startswith("no facts: ")
    assert ticks.cursor == before
    assert CheckpointId(1) in job.store.manifests.ids()
