"""Windows: durations as people write them, and the window that a time belongs to."""

import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.windows import (
    CumulativeWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
    are_equal,
    cumulative,
    ends_us,
    event_times_us,
    grows_from_us,
    known_times_us,
    last_ends_us,
    pane_numbers,
    pane_starts,
    require_time_column,
    sliding,
    tumbling,
    window_starts_us,
    window_text,
    windows_per_row,
)

MINUTE = 60_000_000


def test_windows_are_written_in_words_and_kept_in_microseconds() -> None:
    assert tumbling("5 minutes") == TumblingWindow(5 * MINUTE)
    assert tumbling("1 day", offset="1 hour") == TumblingWindow(24 * 60 * MINUTE, 60 * MINUTE)
    assert sliding("10 minutes", "5 minutes") == SlidingWindow(10 * MINUTE, 5 * MINUTE)
    growing = cumulative("10 minutes", "5 minutes", offset="1 minute")
    assert growing == CumulativeWindow(10 * MINUTE, 5 * MINUTE, MINUTE)


@pytest.mark.parametrize("slide", ["4 minutes", "20 minutes"])
def test_a_slide_that_does_not_divide_the_size_is_refused(slide: str) -> None:
    with pytest.raises(ConfigurationError, match=f"10 minutes is not a multiple of {slide}"):
        sliding("10 minutes", slide)
    with pytest.raises(ConfigurationError, match=f"10 minutes is not a multiple of {slide}"):
        cumulative("10 minutes", slide)


def test_windows_describe_what_they_are() -> None:
    assert tumbling("1 second").describe() == {
        "kind": "tumbling", "size_us": 1_000_000, "offset_us": 0,
    }  # fmt: skip
    assert sliding("2 seconds", "1 second").describe() == {
        "kind": "sliding", "size_us": 2_000_000, "slide_us": 1_000_000, "offset_us": 0,
    }  # fmt: skip
    assert cumulative("2 seconds", "1 second").describe() == {
        "kind": "cumulative", "size_us": 2_000_000, "step_us": 1_000_000, "offset_us": 0,
    }  # fmt: skip


def test_only_cumulative_windows_grow_from_somewhere() -> None:
    assert grows_from_us(CumulativeWindow(20, 10, 3)) == 3
    assert grows_from_us(SlidingWindow(20, 10, 3)) is None


def starts_of(window: Window, times: list[int]) -> list[int]:
    return pane_starts(window, pane_numbers(window, np.array(times))).tolist()


@pytest.mark.parametrize(
    ("time", "start"),
    [(0, 0), (9, 0), (10, 10), (-1, -10), (-10, -10), (-11, -20)],
)
def test_a_window_has_its_start_and_not_its_end_also_before_1970(time: int, start: int) -> None:
    assert starts_of(TumblingWindow(10), [time]) == [start]


@settings(deadline=None)
@given(
    times=st.lists(st.integers(-(2**61), 2**61), min_size=1),
    size=st.integers(1, 2**40),
    offset=st.integers(0, 2**41),
)
def test_every_time_is_in_its_window(times: list[int], size: int, offset: int) -> None:
    starts = starts_of(TumblingWindow(size, offset), times)
    assert all(start <= time < start + size for start, time in zip(starts, times, strict=True))
    assert all((start - offset) % size == 0 for start in starts)


def test_the_pane_of_a_sliding_window_is_as_long_as_its_slide() -> None:
    assert starts_of(SlidingWindow(30, 10), [25, 30, -1]) == [20, 30, -10]


def test_the_pane_of_a_cumulative_window_is_as_long_as_its_step() -> None:
    assert starts_of(CumulativeWindow(30, 10, 2), [25, 32, -1]) == [22, 32, -8]


INSTANT = datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_timestamps_of_any_unit_and_zone_become_microseconds(unit: str, zone: str | None) -> None:
    column = pa.array([INSTANT.replace(tzinfo=None)], pa.timestamp(unit))
    column = column.cast(pa.int64()).cast(pa.timestamp(unit, zone))
    batch = pa.record_batch({"ts": column})
    require_time_column(batch.schema, "ts")
    assert event_times_us(batch, "ts").tolist() == [-2_000_000]


def test_integers_are_microseconds() -> None:
    batch = pa.record_batch({"ts": [1, -1]})
    require_time_column(batch.schema, "ts")
    assert event_times_us(batch, "ts").tolist() == [1, -1]


def test_nanoseconds_round_down_also_before_1970() -> None:
    times = pa.array([1_999, -1], pa.timestamp("ns"))
    assert known_times_us(times, "ts").tolist() == [1, -1]


def test_a_slice_has_the_times_of_its_rows() -> None:
    batch = pa.record_batch({"ts": pa.array([1, 2, 3], pa.timestamp("us"))}).slice(1)
    assert event_times_us(batch, "ts").tolist() == [2, 3]


def test_no_rows_have_no_times() -> None:
    batch = pa.record_batch({"ts": pa.array([], pa.timestamp("ms"))})
    assert event_times_us(batch, "ts").tolist() == []


def test_rows_without_event_time_are_counted_in_the_error() -> None:
    batch = pa.record_batch({"ts": pa.array([1, None, None], pa.timestamp("us"))})
    with pytest.raises(DataError, match="2 of 3 rows have no event time in 'ts'; filter") as caught:
        event_times_us(batch, "ts")
    assert caught.value.code is ErrorCode.NULL_EVENT_TIME


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (2**63 - 1, pa.int64()),
        (-(2**63), pa.int64()),
        (2**62 + 1, pa.timestamp("us")),
        (2**62 // 1_000, pa.timestamp("s")),
        (2**62, pa.timestamp("ms")),
    ],
)
def test_a_time_that_would_wrap_is_refused(value: int, data_type: pa.DataType) -> None:
    batch = pa.record_batch({"ts": pa.array([0, value], pa.int64()).cast(data_type)})
    with pytest.raises(DataError, match=f"event time {value} .* check the unit") as caught:
        event_times_us(batch, "ts")
    assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW


@pytest.mark.parametrize("data_type", [pa.int32(), pa.string(), pa.date32(), pa.float64()])
def test_other_types_are_no_event_time(data_type: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"'ts' is {data_type}")) as caught:
        require_time_column(pa.schema([("ts", data_type)]), "ts")
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE


@pytest.mark.parametrize(
    ("window", "most"),
    [
        (tumbling("10us", offset="3us"), 1),
        (sliding("10us", "5us", offset="1us"), 2),
        (cumulative("12us", "4us", offset="1us"), 3),
    ],
)
def test_a_time_is_in_exactly_the_windows_that_are_returned(window: Window, most: int) -> None:
    """Goal: compared with a search through all windows near it, also before 1970."""
    times_us = np.arange(-25, 40)
    positions, ends = ends_us(window, times_us)
    starts = window_starts_us(window, ends)
    found = set(zip(times_us[positions].tolist(), starts.tolist(), ends.tolist(), strict=True))
    sizes = range(4, 13, 4) if isinstance(window, CumulativeWindow) else [window.size_us]
    every_us = window.slide_us if isinstance(window, SlidingWindow) else window.size_us
    firsts = range(window.offset_us - 10 * every_us, 60, every_us)
    expected = {
        (time, first, first + size)
        for time in times_us.tolist()
        for first in firsts
        for size in sizes
        if first <= time < first + size
    }
    assert len(found) == len(positions)
    assert found == expected
    assert windows_per_row(window) == most == np.bincount(positions).max()
    last = {time: max(end for one, _, end in expected if one == time) for time, _, _ in expected}
    assert last_ends_us(window, times_us).tolist() == [last[time] for time in times_us.tolist()]


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        (tumbling("5 s"), sliding("5 s", "5 s"), True),
        (tumbling("5 s"), cumulative("5 s", "5 s", offset="5 s"), True),
        (sliding("6 s", "2 s", offset="5 s"), sliding("6 s", "2 s", offset="1 s"), True),
        (cumulative("6 s", "2 s", offset="7 s"), cumulative("6 s", "2 s", offset="1 s"), True),
        (cumulative("6 s", "2 s", offset="3 s"), cumulative("6 s", "2 s", offset="1 s"), False),
        (tumbling("5 s"), tumbling("5 s", offset="1 s"), False),
        (tumbling("5 s"), sliding("5 s", "1 s"), False),
        (sliding("6 s", "2 s"), cumulative("6 s", "2 s"), False),
    ],
)
def test_windows_are_equal_if_every_row_is_in_the_same_ones(
    one: Window, other: Window, *, is_equal: bool
) -> None:
    times_us = np.arange(-8_000_000, 20_000_000, 500_000)
    found = []
    for window in (one, other):
        positions, ends = ends_us(window, times_us)
        starts = window_starts_us(window, ends)
        found.append(sorted(zip(positions.tolist(), starts.tolist(), ends.tolist(), strict=True)))
    assert are_equal(one, other) == are_equal(other, one) == is_equal
    assert (found[0] == found[1]) == is_equal


def test_windows_are_named_in_messages() -> None:
    assert window_text(tumbling("90 s")) == "tumbling windows of 90 s"
    found = window_text(sliding("1 minute", "500 ms", offset="1 ms"))
    assert found == "sliding windows of 60 s every 0.5 s, from 0.001 s on"
    assert window_text(cumulative("2 s", "1 s")) == "cumulative windows of 2 s with steps of 1 s"
