"""Event time in a join: late rows are dropped and counted, also after a restore."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.operators.base import Snapshot
from laminar_core.operators.joins.as_of import AsOfJoin
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.side import EventRows, JoinSide
from laminar_core.operators.progress import Progress
from laminar_core.protocol.types import WATERMARK_MIN_US
from tests.operators.joins.join_histories import MAX_PARALLELISM, History, context


def events(*rows: tuple[str, int]) -> EventRows:
    keys, times = zip(*rows, strict=True)
    return EventRows(pa.table({"k": keys}), np.array(times, np.int64))


def times(progress: JoinProgress, *rows: tuple[str, int]) -> list[int]:
    return progress.in_time(events(*rows), ["k"]).times_us.tolist()


def test_a_row_at_the_watermark_is_in_time() -> None:
    progress = JoinProgress(context(), 0)
    assert times(progress, ("a", -5)) == [-5]
    assert progress.passed_us is None
    assert progress.advance(10) == progress.passed_us == 9
    assert progress.advance(10) is None
    assert times(progress, ("a", 9), ("a", 10), ("b", 11)) == [10, 11]
    assert progress.late_row_count == 1
    kept, late = progress.parted(events(("a", 9), ("b", 12), ("a", 8)), ["k"])
    assert (kept.times_us.tolist(), late.num_rows) == ([12], 2)
    assert progress.late_row_count == 3


def test_a_lag_makes_the_watermark_older_but_never_wraps() -> None:
    progress = JoinProgress(context(), 5)
    assert progress.of_times(10) == 5
    assert progress.advance(WATERMARK_MIN_US) is None
    assert progress.watermark_us == WATERMARK_MIN_US


def group_of(key: str) -> int:
    batch = pa.record_batch([[key]], ["k"])
    return int(key_groups_of(batch, ["k"], MAX_PARALLELISM)[0])


def test_what_was_ahead_stays_late_until_the_watermark_has_caught_up() -> None:
    """Goal: of two old subtasks with other watermarks, each decides for its own keys."""
    before = [JoinProgress(context(n, 2), 0) for n in range(2)]
    keys = {group_of(key) // 4: key for key in "abcdefgh"}
    for progress, watermark_us in zip(before, (100, 50), strict=True):
        progress.advance(watermark_us)
        times(progress, (keys[0], 0))
    snapshots = [Snapshot(properties=progress.properties()) for progress in before]
    restored = JoinProgress(context(), 0)
    restored.restore(snapshots)
    assert restored.late_row_count == 2
    assert restored.watermark_us == 50
    rows = [(keys[0], 99), (keys[0], 100), (keys[1], 50), (keys[1], 49)]
    assert times(restored, *rows) == [100, 50]
    again = JoinProgress(context(), 0)
    again.restore([Snapshot(properties=restored.properties())])
    assert times(again, *rows) == [100, 50]
    again.advance(100)
    assert "fired_ahead" not in again.properties()


KEYS = ("a", "b", "c", "")
SIDES = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")
AHEAD: list[tuple] = [
    ("rows", 0, [(key, 0, 1) for key in KEYS]),
    ("watermark", 1),
    ("one_watermark", 0, 9),
    ("restart", 1),
    ("rows", 1, [(key, 0, 2) for key in KEYS]),
]
"""One of two subtasks is ahead; then one subtask has the keys of both."""


@pytest.mark.parametrize(
    "spec",
    [IntervalJoin("join", *SIDES, 0, 5), AsOfJoin("join", *SIDES, 5)],
    ids=["within", "as of"],
)
def test_a_late_row_that_is_accepted_after_a_rescale_would_be_noticed(
    spec: IntervalJoin | AsOfJoin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: whoever was ahead is forgotten, and the least watermark decides."""
    assert 0 < len(History(spec, (), 2).run(AHEAD).late) < len(KEYS)
    monkeypatch.setattr(
        Progress, "is_late", lambda _self, rows, _keys, _times: np.zeros(rows.num_rows, np.bool_)
    )
    with pytest.raises(AssertionError):
        History(spec, (), 2).run(AHEAD)
