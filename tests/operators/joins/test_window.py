"""The window join against all pairs of rows in each window, whatever cuts and restores."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError
from laminar_core.operators import windows
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.window import WindowJoin
from laminar_core.operators.windows import Window
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import (
    HISTORIES,
    LEFT_SCHEMA,
    RIGHT_SCHEMA,
    History,
    Row,
    batch,
    context,
    counted,
    emitted,
    joined,
    left_alone,
)
from tests.sampling import drawn

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")
TUMBLING = windows.tumbling("5us", offset="2us")
WINDOWS = (
    TUMBLING,
    windows.sliding("6us", "2us"),
    windows.cumulative("6us", "2us", offset="1us"),
)


def join(window: Window = TUMBLING, how: How = "inner") -> WindowJoin:
    return WindowJoin("join", LEFT, RIGHT, window, how=how)


def windows_of(window: Window, time_us: int) -> list[tuple[int, int]]:
    """Return the start and the end of each window that a time is in, by trying all near ones."""
    sizes = [window.size_us]
    if isinstance(window, windows.CumulativeWindow):
        sizes = list(range(window.step_us, window.size_us + 1, window.step_us))
    every_us = window.slide_us if isinstance(window, windows.SlidingWindow) else window.size_us
    first = (time_us - window.offset_us) // every_us * every_us + window.offset_us
    starts = range(first - window.size_us, first + 1, every_us)
    found = [(start, start + size) for start in starts for size in sizes]
    return [(start, end) for start, end in found if start <= time_us < end]


def expected(spec: WindowJoin, history: History) -> Counter[tuple]:
    """Return the result of the accepted rows, window by window."""
    sides: list[dict[tuple | None, list[Row]]] = [{}, {}]
    for side, found in enumerate(sides):
        for row, reached_us in zip(history.accepted[side], history.reached[side], strict=True):
            all_windows = [] if row[1] is None else windows_of(spec.window, row[1])
            still_open = [one for one in all_windows if one[1] > reached_us]
            for one in still_open if row[1] is not None else [None]:
                found.setdefault(one, []).append(row)
    rows: list[dict] = []
    for window in {**sides[0], **sides[1]}:
        left, right = (side.get(window, []) for side in sides)
        rows += [
            {**row, **bounds_of(window)} for row in of_one_window(spec.how, left, right, window)
        ]
    return counted(rows)


def bounds_of(window: tuple[int, int] | None) -> dict:
    start, end = window or (None, None)
    utc = pa.timestamp("us", "UTC")
    return {
        "window_start": pa.scalar(start, utc).as_py(),
        "window_end": pa.scalar(end, utc).as_py(),
    }


def of_one_window(
    how: How, left: list[Row], right: list[Row], window: tuple[int, int] | None
) -> list[dict]:
    def meet(mine: Row, theirs: Row) -> bool:
        return window is not None and mine[0] is not None and mine[0] == theirs[0]

    met = [any(meet(mine, theirs) for theirs in right) for mine in left]
    if how in {"semi", "anti"}:
        rows = zip(left, met, strict=True)
        return [left_alone(mine) for mine, has_met in rows if has_met == (how == "semi")]
    rows = [joined(mine, theirs) for mine in left for theirs in right if meet(mine, theirs)]
    if how in {"left", "full"}:
        rows += [joined(mine, None) for mine, has_met in zip(left, met, strict=True) if not has_met]
    if how in {"right", "full"}:
        rows += [joined(None, one) for one in right if not any(meet(mine, one) for mine in left)]
    return rows


@settings(deadline=None, max_examples=drawn(100))
@given(
    st.sampled_from(WINDOWS),
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    HISTORIES,
    st.integers(1, 3),
)
def test_results_are_those_of_all_pairs_in_each_window(
    window: Window, how: How, steps: list[tuple], workers: int
) -> None:
    """Goal: the rows are exact, and none lags further than its column may, whatever happens."""
    spec = join(window, how)
    times = ["window_end", "window_start", "t", "t_right"]
    lags_us = [0, *[window.size_us] * 3]
    if how in {"semi", "anti"}:
        times, lags_us = times[:3], lags_us[:3]
    history = History(
        spec,
        times,
        workers,
        judged_us=lambda time_us: windows_of(window, time_us)[-1][1] - 1,
        lags_us=lags_us,
    ).run(steps)
    assert counted(history.output) == expected(spec, history)


def test_a_pair_comes_at_once_and_a_lonely_row_when_its_window_ends() -> None:
    subtask = join(how="left").open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    assert emitted(*subtask.process_input(0, batch(0, [("a", 12, 1), ("b", 13, 2)]))) == []
    assert emitted(*subtask.process_input(1, batch(1, [("a", 16, 7), ("a", 17, 8)]))) == [(1, 7)]
    assert emitted(*subtask.on_watermark(16)) == []
    assert emitted(*subtask.process_input(1, batch(1, [("a", 12, 9)]))) == [(1, 9)], "still open"
    assert emitted(*subtask.on_watermark(17)) == [(2, None)]
    assert subtask.output_watermark(17) == 17
    assert emitted(*subtask.process_input(0, batch(0, [("a", 16, 3), ("a", 17, 4)]))) == [(4, 8)]
    assert subtask.late_row_count == 1
    assert emitted(*subtask.on_watermark(WATERMARK_END_US)) == []
    assert subtask.held_row_count == 0


def test_a_row_of_several_windows_is_late_when_the_last_one_has_ended() -> None:
    subtask = join(WINDOWS[1], "anti").open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.on_watermark(12))
    list(subtask.process_input(0, batch(0, [("a", 9, 1), ("a", 5, 2)])))
    assert subtask.late_row_count == 1
    [found] = subtask.on_watermark(WATERMARK_END_US)
    assert found.select(["id", "window_end"]).to_pylist() == [
        {"id": 1, "window_end": bounds_of((8, 14))["window_end"]}
    ]


@pytest.mark.parametrize("how", ["full", "anti"])
def test_the_state_is_the_rows_of_open_windows(how: How) -> None:
    """Goal: a hundred windows, and the rows held stay within twice of what two windows have."""
    subtask = join(windows.tumbling("50us"), how).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    for time_us in range(0, 5_000, 25):
        rows = [(str(n), time_us + n % 25, n) for n in range(50)]
        for side in (0, 1):
            list(subtask.process_input(side, batch(side, rows)))
        list(subtask.on_watermark(time_us))
        assert subtask.held_row_count <= 2 * 2 * 2 * 50
        if time_us % 50 == 0:
            subtask.snapshot_changes(CheckpointId(1))


def test_semi_and_anti_keep_the_keys_of_right_rows_only() -> None:
    spec = join(how="anti")
    tables = spec.state_tables(LEFT_SCHEMA, RIGHT_SCHEMA)
    assert tables["right"].names == ["key_group", "key", "_expires"]
    assert spec.output_schema(LEFT_SCHEMA, RIGHT_SCHEMA).names == [
        *LEFT_SCHEMA.names,
        "window_start",
        "window_end",
    ]


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"in 1440 windows.*choose a longer slide"):
        join(windows.cumulative("1 day", "1 minute"))
    with pytest.raises(ConfigurationError, match="semi, anti, not outer"):
        join(how="outer")
    schema = LEFT_SCHEMA.append(pa.field("window_end", pa.int64()))
    with pytest.raises(ConfigurationError, match=r"adds a column 'window_end'.*with map"):
        join().output_schema(schema, RIGHT_SCHEMA)


def test_the_description_is_the_meaning_of_the_state() -> None:
    described = [join().describe(), join(WINDOWS[1]).describe(), join(how="left").describe()]
    assert all(described[0] != other for other in described[1:])
    again = WindowJoin("other", LEFT, RIGHT, TUMBLING, suffix="_2", lag_us=5)
    assert again.describe() == described[0]
