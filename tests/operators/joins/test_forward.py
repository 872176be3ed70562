"""The forward as-of join against a loop over sorted rows, whatever cuts and restores."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError
from laminar_core.operators.joins.forward import ForwardAsOfJoin
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.waiting import AsOfHow
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
)
from tests.sampling import drawn

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")


def join(distance_us: int | None = 10, how: AsOfHow = "left") -> ForwardAsOfJoin:
    return ForwardAsOfJoin("join", LEFT, RIGHT, distance_us, how)


def partner_of(spec: ForwardAsOfJoin, mine: Row, right: Sequence[Row]) -> Row | None:
    key, time_us, _ = mine
    if key is None or time_us is None:
        return None
    later = [one for one in right if one[0] == key and one[1] is not None and one[1] >= time_us]
    first = min(later, key=lambda one: (one[1], -one[2]), default=None)
    return first if first is not None and first[1] - time_us <= spec.distance_us else None


def expected(spec: ForwardAsOfJoin, left: Sequence[Row], right: Sequence[Row]) -> Counter[tuple]:
    """Return the result of the accepted rows, one after the other."""
    partners = [(mine, partner_of(spec, mine, right)) for mine in left]
    return counted(
        joined(mine, theirs)
        for mine, theirs in partners
        if theirs is not None or spec.how == "left"
    )


@settings(deadline=None, max_examples=drawn(100))
@given(st.integers(1, 12), st.sampled_from(["inner", "left"]), HISTORIES, st.integers(1, 3))
def test_results_are_those_of_a_loop_over_sorted_rows(
    distance_us: int, how: AsOfHow, steps: list[tuple], workers: int
) -> None:
    """Goal: the rows are exact, and none is late behind the join, whatever happens in between."""
    spec = join(distance_us, how)
    history = History(spec, ("t",), workers).run(steps)
    assert counted(history.output) == expected(spec, *history.accepted)


def test_many_rows_are_joined_as_pandas_joins_them() -> None:
    """Goal: a second opinion, on rows out of order within the delay of the watermark."""
    rng, delay_us = np.random.default_rng(7), 300
    frames = []
    for side, count in ((0, 4_000), (1, 3_000)):
        times = rng.choice(40_000, count, replace=False)
        keys = rng.integers(0, 40, count)
        arrival = np.argsort(times + rng.integers(0, delay_us, count))
        rows = pd.DataFrame({"key": keys.astype(str), "t": times, "n": np.arange(count)})
        frames.append(rows.iloc[arrival].assign(side=side))
    events = pd.concat(frames).sort_values("t", key=lambda t: t // 500, kind="stable")
    subtask, output, newest_us = join(400).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA), [], 0
    for start in range(0, len(events), 500):
        part = events.iloc[start : start + 500]
        newest_us = max(newest_us, int(part["t"].max()))
        for side, rows in part.groupby("side"):
            values = list(rows[["key", "t", "n"]].itertuples(index=False, name=None))
            output += subtask.process_input(int(side), batch(int(side), values))
        output += subtask.on_watermark(newest_us - 1_000)
    output += subtask.on_watermark(WATERMARK_END_US)
    assert subtask.late_row_count == 0
    found = {row["id"]: row["u"] for part in output for row in part.to_pylist()}
    left, right = (one.sort_values("t") for one in frames)
    wanted = pd.merge_asof(left, right, on="t", by="key", tolerance=400, direction="forward")
    assert found == {
        mine: None if pd.isna(theirs) else int(theirs)
        for mine, theirs in zip(wanted["n_x"], wanted["n_y"], strict=True)
    }
    assert 1_000 < sum(theirs is not None for theirs in found.values()) < 3_500


def test_a_row_leaves_when_the_time_of_its_partner_has_passed() -> None:
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(0, batch(0, [("a", 10, 1), ("b", 10, 2), ("a", 13, 3)])))
    list(subtask.process_input(1, batch(1, [("a", 12, 5), ("a", 12, 4), ("a", 9, 3)])))
    assert emitted(*subtask.on_watermark(12)) == [], "a row at the watermark may still come"
    assert subtask.output_watermark(12) == 10
    list(subtask.process_input(1, batch(1, [("a", 12, 6)])))
    assert emitted(*subtask.on_watermark(13)) == [(1, 6)]
    assert subtask.output_watermark(13) == 10, "b waits"
    assert emitted(*subtask.on_watermark(21)) == [(2, None)]
    assert subtask.output_watermark(21) == 13
    list(subtask.process_input(1, batch(1, [("a", 20, 7), ("a", 22, 8)])))
    assert subtask.late_row_count == 1
    assert emitted(*subtask.on_watermark(23)) == [(3, 8)], "the first one that is within 10"
    assert subtask.output_watermark(23) == 23
    assert emitted(*subtask.on_watermark(WATERMARK_END_US)) == []


@pytest.mark.parametrize("how", ["left", "inner"])
def test_left_rows_that_had_no_partner_in_time_are_counted(how: AsOfHow) -> None:
    subtask = join(10, how).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(0, batch(0, [("a", 1, 1), ("b", 2, 2), ("c", 9, 3)])))
    list(subtask.process_input(1, batch(1, [("a", 3, 7)])))
    list(subtask.on_watermark(13))
    assert subtask.expired_row_count == 1
    list(subtask.on_watermark(WATERMARK_END_US))
    assert subtask.expired_row_count == 1, "the input has ended"


def test_rows_that_cannot_have_a_partner_do_not_wait() -> None:
    rows: list[Row] = [(None, 60, 1), ("a", None, 2), (None, 40, 3)]
    for how, kept in (("left", [(2, None), (1, None)]), ("inner", [])):
        subtask = join(how=how).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
        list(subtask.on_watermark(50))
        assert emitted(*subtask.process_input(0, batch(0, rows))) == kept
        assert (subtask.late_row_count, subtask.held_row_count) == (1, 0)


@pytest.mark.parametrize("key_count", [1, 20])
def test_the_state_is_the_left_rows_of_the_distance(key_count: int) -> None:
    """Goal: a hundred distances, and the rows held stay within twice of the rows of one."""
    subtask = join(50).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    for time_us in range(0, 5_000, 25):
        rows = [(str(n % key_count), time_us + n % 25, n) for n in range(50)]
        list(subtask.process_input(0, batch(0, rows)))
        list(subtask.process_input(1, batch(1, rows[: time_us % 3])))
        list(subtask.on_watermark(time_us))
        assert subtask.held_row_count <= 2 * 50 * (50 // 25 + 2) + 2 * 2 * 2
        if time_us % 50 == 0:
            subtask.snapshot_changes(CheckpointId(1))


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match="direction='forward' needs a max_distance"):
        join(None)
    with pytest.raises(ConfigurationError, match="how is inner or left, not full"):
        join(how="full")
    schema = LEFT_SCHEMA.append(pa.field("l", pa.list_(pa.int8())))
    with pytest.raises(ConfigurationError, match=r"'l' is list<.*leave it out"):
        join().output_schema(schema, RIGHT_SCHEMA)


def test_the_description_is_the_meaning_of_the_state() -> None:
    described = [join().describe(), join(5).describe(), join(how="inner").describe()]
    assert all(described[0] != other for other in described[1:])
