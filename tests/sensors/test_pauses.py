"""Pauses are kept in Dagster's database, stream by stream."""

from collections.abc import Iterator

import dagster as dg
import pytest

from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.sensors.pauses import Pause, read_pauses, record_pause

NOW_MS = 1_700_000_000_000


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_a_pause_is_of_one_stream_until_it_is_ended(instance: dg.DagsterInstance) -> None:
    pause = Pause(sensors=("recovery",), by="ann", reason="a repair")
    record_pause(instance, "orders", pause)
    assert read_pauses(instance, ["orders", "bids"]) == {"orders": pause}
    assert pause.applies("recovery", NOW_MS)
    assert not pause.applies("alignment", NOW_MS)
    record_pause(instance, "orders", Pause())
    assert not read_pauses(instance, ["orders"])["orders"].applies("recovery", NOW_MS)


def test_one_for_a_time_ends_by_itself() -> None:
    pause = Pause(sensors=("recovery",), until_ms=NOW_MS)
    assert pause.applies("recovery", NOW_MS - 1)
    assert not pause.applies("recovery", NOW_MS)


def test_it_says_who_until_when_and_why() -> None:
    pause = Pause(sensors=("recovery",), by="ann", reason="a repair")
    assert str(pause) == "paused by ann until somebody resumes it: a repair"
    timed = pause.model_copy(update={"until_ms": NOW_MS})
    assert str(timed) == "paused by ann until 2023-11-14 22:13 UTC: a repair"


@pytest.mark.parametrize("until_ms", [TIME_MS_MAX, TIME_MS_MAX + 1, 2**80])
def test_one_until_a_time_that_no_calendar_shows_lasts_as_long_as_the_calendar(
    until_ms: int,
) -> None:
    pause = Pause(sensors=("recovery",), by="ann", reason="a repair")
    text = pause.model_copy(update={"until_ms": until_ms}).model_dump_json()
    read = Pause.read(text)
    assert read.applies("recovery", NOW_MS)
    assert str(read) == "paused by ann until 9999-12-31 23:59 UTC: a repair"


def test_one_until_no_time_at_all_counts_as_none() -> None:
    assert Pause.read('{"sensors": ["recovery"], "until_ms": "for ever"}') == Pause()
    assert Pause.read('{"sensors": ["recovery"], "until_ms": -1}') == Pause()
