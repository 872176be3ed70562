"""Which partitions of an output are reported: each once while it is there, and none too early."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.sink_outputs import EventTimeReached
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.sensors.observer.output_decision import (
    PARTITIONS_MAX,
    Passed,
    ReportedOutput,
    VisibleOutput,
    Withdrawn,
    has_new_rows,
    kept_by,
    passed_partitions,
    withdrawn_to,
)

HOURS = OutputPartitions(every="hour", start="2026-03-28")
LATE = datetime(2027, 1, 1, tzinfo=UTC)
"""When nearly all partitions are over."""


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


def visible(text: str, *, ended: bool = False, checkpoint_id: int = 9) -> VisibleOutput:
    return VisibleOutput(checkpoint_id, 5, EventTimeReached(us(text), ended=ended))


def passed(
    seen: VisibleOutput,
    reported: str | None = None,
    withdrawn: Withdrawn | None = None,
    now: datetime = LATE,
    partitions: OutputPartitions = HOURS,
) -> Passed:
    told = None if reported is None else ReportedOutput("store", 3, 1, 5, reported)
    return passed_partitions(partitions, told, seen, withdrawn, int(now.timestamp() * 1000))


def base(generation: int, checkpoint_id: int | None, **more: bool) -> Base:
    kept = None if checkpoint_id is None else CheckpointId(checkpoint_id)
    return Base(Generation(generation), kept, **more)


# --- partitions -----------------------------------------------------------------------------------


def test_an_hour_is_complete_when_event_time_has_reached_its_end() -> None:
    assert passed(visible("2026-03-28T00:59:59.999999")) == Passed()
    assert passed(visible("2026-03-28T01:00")) == Passed(("2026-03-28-00:00",))
    assert passed(visible("2026-03-28T03:30"), "2026-03-28-00:00") == Passed(
        ("2026-03-28-01:00", "2026-03-28-02:00")
    )


def test_nothing_is_complete_while_a_sink_knows_no_event_time() -> None:
    assert passed(VisibleOutput(9, 5, EventTimeReached(None))) == Passed()


def test_at_the_end_of_the_input_the_hour_that_event_time_is_in_is_complete() -> None:
    assert passed(visible("2026-03-28T01:30", ended=True)) == Passed(
        ("2026-03-28-00:00", "2026-03-28-01:00")
    )


def test_after_a_gap_a_tick_reports_so_many_hours_and_the_next_one_goes_on() -> None:
    seen = visible("2026-04-01T00:00")
    first = passed(seen)
    assert (len(first.partitions), first.more) == (PARTITIONS_MAX, True)
    second = passed(seen, first.partitions[-1])
    assert (second.partitions[0], second.more) == ("2026-03-30-02:00", False)
    assert second.partitions[-1] == "2026-03-31-23:00"


def test_an_hour_of_the_future_waits_until_dagster_knows_its_partition() -> None:
    seen = visible("2026-03-28T02:00")
    now = datetime(2026, 3, 28, 1, 59, tzinfo=UTC)
    assert passed(seen, now=now) == Passed(("2026-03-28-00:00",), more=True)
    assert passed(seen, "2026-03-28-00:00", now=now) == Passed((), more=True)
    assert passed(seen, "2026-03-28-00:00", now=now + timedelta(minutes=1)) == Passed(
        ("2026-03-28-01:00",)
    )


@pytest.mark.parametrize("time_us", [-(2**62), 2**62, us("1999-01-01T00:00")])
def test_any_event_time_can_be_asked_about(time_us: int) -> None:
    found = passed(VisibleOutput(9, 5, EventTimeReached(time_us)))
    assert bool(found.partitions) == (time_us > us("2026-03-28T01:00"))


def test_hours_and_days_of_a_zone_follow_its_clocks() -> None:
    zone = OutputPartitions(every="hour", start="2026-03-29", timezone="Europe/Berlin")
    found = passed(visible("2026-03-29T02:00"), partitions=zone)
    assert found.partitions == ("2026-03-29-00:00", "2026-03-29-01:00", "2026-03-29-03:00")
    days = replace_every(zone, "day")
    assert passed(visible("2026-03-29T21:59"), partitions=days) == Passed()
    assert passed(visible("2026-03-29T22:00"), partitions=days) == Passed(("2026-03-29",))


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        ("Europe/Berlin", ("2026-10-25-01:00", "2026-10-25-02:00", "2026-10-25-02:00+0100")),
        ("Atlantic/Azores", ("2026-10-24-23:00", "2026-10-25-00:00", "2026-10-25-00:00-0100")),
    ],
)
def test_an_hour_that_comes_twice_is_two_partitions(zone: str, hours: tuple[str, ...]) -> None:
    partitions = OutputPartitions(every="hour", start="2026-03-28", timezone=zone)
    definition = partitions.definition
    for before, hour in pairwise(hours):
        end = definition.end_time_for_partition_key(hour).astimezone(UTC).replace(tzinfo=None)
        assert passed(visible(str(end)), before, partitions=partitions) == Passed((hour,))
        assert passed(visible(str(end)), hour, partitions=partitions) == Passed()


def replace_every(partitions: OutputPartitions, every: str) -> OutputPartitions:
    return OutputPartitions.model_validate({**partitions.model_dump(), "every": every})


def test_other_partitions_than_before_begin_anew() -> None:
    assert passed(visible("2026-03-28T01:00"), "2026-03-28").partitions == ("2026-03-28-00:00",)


# --- output that is withdrawn ---------------------------------------------------------------------


def test_withdrawn_hours_are_reported_again_when_they_are_passed_again() -> None:
    kept = Withdrawn(us("2026-03-28T01:30"))
    assert passed(visible("2026-03-28T01:45"), "2026-03-28-04:00", kept) == Passed()
    assert passed(visible("2026-03-28T03:00"), "2026-03-28-04:00", kept).partitions == (
        "2026-03-28-01:00",
        "2026-03-28-02:00",
    )
    assert passed(visible("2026-03-28T01:00"), "2026-03-28-04:00", Withdrawn()).partitions == (
        "2026-03-28-00:00",
    )


def test_a_restart_that_goes_on_where_it_was_withdraws_nothing() -> None:
    told = ReportedOutput("store", 8, 2, 5)
    assert withdrawn_to(told, [base(1, None), base(2, 3), base(3, 8), base(4, 9)]) is None


def test_of_later_generations_the_one_that_kept_least_counts() -> None:
    told = ReportedOutput("store", 8, 2, 5)
    assert withdrawn_to(told, [base(3, 5), base(4, 9)]) == base(3, 5)
    fresh, reset = base(4, None), base(4, 9, has_reset=True)
    assert withdrawn_to(told, [base(3, 5), fresh]) == fresh
    assert withdrawn_to(told, [base(3, 8), reset]) == reset
    assert kept_by(fresh) == kept_by(reset) == 0


# --- without partitions ---------------------------------------------------------------------------


def test_an_output_without_partitions_is_reported_when_rows_became_visible() -> None:
    seen = VisibleOutput(9, 5, EventTimeReached(None))
    told = ReportedOutput("store", 8, 2, 4)
    assert has_new_rows(None, seen, None)
    assert not has_new_rows(None, replace(seen, rows=0), None)
    assert has_new_rows(told, seen, None)
    assert not has_new_rows(replace(told, rows=5), seen, None)
    assert not has_new_rows(replace(told, checkpoint_id=9), seen, None)
    assert has_new_rows(replace(told, rows=5), seen, Withdrawn())


# --- drawn histories ------------------------------------------------------------------------------


@dataclass
class Stream:
    """A stream that goes on and falls back, the sensor that looks at it, and a judge."""

    partitions: OutputPartitions
    generation: int = 1
    bases: list[Base] = field(default_factory=lambda: [base(1, None)])
    line: list[tuple[int, int, int]] = field(default_factory=list)
    """Checkpoint, its generation and its event time: the timeline."""
    highest: int = 0
    at_us: int = field(init=False)
    reported: list[ReportedOutput] = field(default_factory=list)
    there: set[str] = field(default_factory=set)
    """Partitions that are reported and not withdrawn since."""

    def __post_init__(self) -> None:
        self.at_us = us(str(self.partitions.start))

    def go_on(self, minutes: int) -> None:
        self.highest += 1
        self.at_us += minutes * 60_000_000
        self.line.append((self.highest, self.generation, self.at_us))

    def fall_back(self, checkpoints: int) -> None:
        self.line = self.line[: max(len(self.line) - checkpoints, 0)]
        nothing = (None, 0, us(str(self.partitions.start)))
        kept, _, self.at_us = self.line[-1] if self.line else nothing
        self.generation += 1
        self.bases.append(base(self.generation, kept))
        # What was reported late is withdrawn with the checkpoint that it was reported of.
        gone = {r.partition for r in self.reported if r.checkpoint_id > (kept or 0)}
        is_kept = kept is not None
        self.there -= {k for k in gone if k and not (is_kept and self._end_us(k) <= self.at_us)}

    def tick(self, writes: int) -> bool:
        """Look, and die after so many writes; return whether everything is reported."""
        if not self.line:
            return True
        newest, generation, time_us = self.line[-1]
        told = self.reported[-1] if self.reported else None
        lost = None if told is None else withdrawn_to(told, self.bases)
        withdrawn = None if lost is None else Withdrawn(self._time_of(lost))
        found = passed_partitions(
            self.partitions,
            told,
            VisibleOutput(newest, 0, EventTimeReached(time_us)),
            withdrawn,
            int(LATE.timestamp() * 1000),
        )
        assert len(found.partitions) <= PARTITIONS_MAX
        for key in found.partitions[:writes]:
            assert key is not None
            assert self._end_us(key) <= time_us, "no partition is reported too early"
            assert key not in self.there, "a partition that is there is not reported again"
            self.there.add(key)
            self.reported.append(ReportedOutput("store", newest, generation, 0, key))
        return not found.more and len(found.partitions) <= writes

    def complete(self) -> set[str]:
        start, end = self.partitions.definition.start, self.at_us
        at = start.astimezone(UTC)
        keys = set[str]()
        while (at := at + timedelta(hours=1)).timestamp() * 1e6 <= end:
            hour = at - timedelta(hours=1)
            keys.add(self.partitions.definition.get_partition_key_for_timestamp(hour.timestamp()))
        return keys

    def _end_us(self, key: str) -> int:
        end = self.partitions.definition.end_time_for_partition_key(key)
        return int(end.timestamp() * 1e6)

    def _time_of(self, lost: Base) -> int | None:
        times = {checkpoint_id: time_us for checkpoint_id, _, time_us in self.line}
        return None if lost.checkpoint_id is None else times.get(lost.checkpoint_id)


STEPS = st.one_of(
    st.tuples(st.just("go on"), st.sampled_from([0, 7, 60, 61, 400, 6_000])),
    st.tuples(st.just("fall back"), st.integers(0, 3)),
    st.tuples(st.just("tick"), st.sampled_from([0, 1, 3, 99])),
)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("start", ["2026-03-28", "2026-10-24"])
@given(steps=st.lists(STEPS, max_size=20))
def test_each_hour_is_reported_once_while_it_is_there_whatever_happens(
    zone: str, start: str, steps
) -> None:
    """Goal: restarts, rewinds, ticks that die or are repeated, late sensors and long gaps.

    Method: the sensor remembers nothing but what it has reported. At the end it ticks until
    everything is reported; then the hours that are complete are the ones that are there.
    """
    stream = Stream(OutputPartitions(every="hour", start=start, timezone=zone))
    for step, number in steps:
        if step == "go on":
            stream.go_on(number)
        elif step == "fall back":
            stream.fall_back(number)
        else:
            stream.tick(number)
    while not stream.tick(99):
        pass
    if stream.line:
        assert stream.there == stream.complete()
