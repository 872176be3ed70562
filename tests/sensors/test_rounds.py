"""A round of many streams: each has its cursor and its turn, and none can stop the others."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import dagster as dg
import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.sensors.background import BackgroundReads, Patience
from laminar_core.sensors.pauses import Pause, record_pause
from laminar_core.sensors.rounds import (
    EVENTS_MAX,
    LINE_LENGTH_MAX,
    ROUND_MS_MAX,
    WHOLE_MS,
    Round,
    RoundCursor,
    StreamTick,
)

KEY = dg.AssetKey("totals")


@dataclass
class Part:
    """One stream's part of a sensor: ``act`` gets the tick, and returns the result."""

    act: Callable[[StreamTick], dg.SensorResult]
    reads: BackgroundReads = field(default_factory=BackgroundReads)


@dataclass
class Rounds:
    """Ticks of one sensor for some streams."""

    instance: dg.DagsterInstance
    parts: Mapping[str, Part]
    clock: ManualClock = field(default_factory=ManualClock)
    cursor: str | None = None
    visited: list[str] = field(default_factory=list)

    def tick(self) -> dg.SensorResult:
        self.visited = []
        round_ = Round("recovery", self.parts, Patience(0), self.clock)
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        context.log.setLevel(logging.CRITICAL)  # A failure of a part is logged with its traceback.

        def visit(part: Part, tick: StreamTick) -> dg.SensorResult:
            self.visited += [name for name, each in self.parts.items() if each is part]
            return part.act(tick)

        result = round_.run(context, visit)
        self.cursor = result.cursor
        return result

    def line(self) -> str:
        skipped = self.tick().skip_reason
        return str(skipped.skip_message) if skipped else ""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def says(line: str) -> Part:
    return Part(lambda _: dg.SensorResult(skip_reason=line))


def counts(tick: StreamTick) -> dg.SensorResult:
    number = int(tick.cursor or "0") + 1
    return dg.SensorResult(cursor=str(number), skip_reason=f"seen {number} times")


def breaks(_: StreamTick) -> dg.SensorResult:
    raise ValueError("the manifest\nis none")


def reports(events: int) -> Part:
    made = [dg.AssetMaterialization(KEY)] * events
    return Part(lambda _: dg.SensorResult(asset_events=made, skip_reason=f"{events} events"))


def cursors(rounds: Rounds) -> dict[str, str | None]:
    read = RoundCursor.read(rounds.cursor)
    return {stream: state.cursor for stream, state in read.streams.items()}


def test_each_stream_has_its_own_cursor(instance) -> None:
    rounds = Rounds(instance, {"orders": Part(counts), "bids": says("nothing new")})
    rounds.tick()
    rounds.tick()
    assert cursors(rounds) == {"orders": "2", "bids": None}


@pytest.mark.parametrize("lost", [None, "", "rubbish", '{"streams": 7}'])
def test_a_cursor_that_is_lost_begins_anew(instance, lost) -> None:
    rounds = Rounds(instance, {"orders": Part(counts), "bids": Part(counts)}, cursor=lost)
    rounds.tick()
    assert cursors(rounds) == {"orders": "1", "bids": "1"}


def test_a_stream_that_came_or_went_changes_nothing_for_the_others(instance) -> None:
    rounds = Rounds(instance, {"orders": Part(counts), "bids": Part(counts)})
    rounds.tick()
    rounds.parts = {"bids": Part(counts), "clicks": Part(counts)}
    rounds.tick()
    assert cursors(rounds) == {"bids": "2", "clicks": "1"}


def test_one_that_fails_is_named_and_the_others_go_on(instance) -> None:
    rounds = Rounds(instance, {"bad": Part(breaks), "orders": Part(counts)})
    assert rounds.line() == (
        "bad: it failed: ValueError: the manifest is none; orders: seen 1 times"
    )
    assert cursors(rounds) == {"bad": None, "orders": "1"}
    assert rounds.line().startswith("bad: it failed")


def test_the_only_stream_fails_as_a_sensor_does(instance) -> None:
    with pytest.raises(ValueError, match="the manifest"):
        Rounds(instance, {"bad": Part(breaks)}).tick()


def test_what_was_said_before_is_not_said_again(instance) -> None:
    """Numbers do not count: an age is another one in each tick."""
    rounds = Rounds(instance, {"orders": Part(counts), "bids": says("nothing new")})
    assert rounds.line() == "orders: seen 1 times; bids: nothing new"
    assert rounds.line() == "2 streams as before"
    rounds.parts = {**rounds.parts, "bids": says("it is dead")}
    assert rounds.line() == "bids: it is dead; 1 stream as before"
    rounds.clock.wait_ms(WHOLE_MS)
    assert rounds.line() == "orders: seen 4 times; bids: it is dead"


def test_a_single_stream_always_says_its_line(instance) -> None:
    rounds = Rounds(instance, {"orders": says("nothing new")})
    assert [rounds.line(), rounds.line()] == ["nothing new"] * 2


def test_a_line_of_many_streams_is_not_endless(instance) -> None:
    rounds = Rounds(instance, {f"stream_{n}": says("x" * 999) for n in range(50)})
    assert len(rounds.line()) == LINE_LENGTH_MAX + 1


def test_a_request_of_one_is_a_request_of_the_tick(instance) -> None:
    asks = Part(lambda _: dg.SensorResult(run_requests=[dg.RunRequest("orders:1")], cursor="7"))
    result = Rounds(instance, {"orders": asks, "bids": says("nothing new")}).tick()
    assert [request.run_key for request in result.run_requests or ()] == ["orders:1"]
    assert result.skip_reason is None


def test_a_large_backlog_leaves_the_rest_to_the_next_tick_which_begins_there(instance) -> None:
    backlog = {"a": reports(EVENTS_MAX), "b": reports(1), "c": reports(1)}
    rounds = Rounds(instance, backlog)
    assert rounds.line().endswith("left to the next tick: 2 streams")
    assert rounds.visited == ["a"]
    rounds.tick()
    assert rounds.visited == ["b", "c", "a"]


def test_a_round_ends_in_time_and_the_next_one_begins_where_it_ended(instance) -> None:
    rounds = Rounds(instance, {})

    def slow(_: StreamTick) -> dg.SensorResult:
        rounds.clock.wait_ms(ROUND_MS_MAX * 0.6)
        return dg.SensorResult(skip_reason="slow")

    rounds.parts = {name: Part(slow) for name in "abc"}
    seen: list[list[str]] = []
    for _ in range(3):
        rounds.tick()
        seen.append(rounds.visited)
    assert seen == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_who_still_waits_for_its_store_comes_last(instance) -> None:
    rounds = Rounds(instance, {name: says("x") for name in "abc"})
    pending = BackgroundReads()
    pending._running["facts"] = Future()
    rounds.parts = {**rounds.parts, "a": Part(rounds.parts["a"].act, pending)}
    rounds.tick()
    assert rounds.visited == ["b", "c", "a"]


def test_a_paused_stream_is_left_alone_and_the_tick_says_by_whom(instance) -> None:
    rounds = Rounds(instance, {"orders": Part(counts), "bids": Part(counts)})
    until_ms = rounds.clock.now_ms() + 60_000
    pause = Pause(sensors=("recovery",), until_ms=until_ms, by="ann", reason="a repair")
    record_pause(instance, "orders", pause)
    assert "orders: paused by ann until 2023-11-14 22:14 UTC: a repair" in rounds.line()
    assert rounds.visited == ["bids"]
    rounds.clock.wait_ms(60_000)
    rounds.tick()
    assert cursors(rounds) == {"orders": "1", "bids": "2"}
