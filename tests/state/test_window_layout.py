"""The state of a window aggregation has the documented layout."""

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import ROW_COUNT
from laminar_core.state import window_layout
from laminar_core.state.window_layout import (
    KEY_GROUP,
    TIME_TYPE,
    WINDOW_START,
    StateLayout,
    WindowTables,
)

SCHEMA = pa.schema([("k", pa.string()), (WINDOW_START, TIME_TYPE), ("count(*)", pa.int64())])
LAYOUT = StateLayout(("k",), (ROW_COUNT,), SCHEMA, size_us=20, slide_us=10, lateness_us=5)


def rows(*keys: str) -> pa.Table:
    return pa.table({"k": list(keys), "count(*)": [1] * len(keys)})


def test_the_schemas_differ_in_window_and_key_group() -> None:
    assert LAYOUT.pane_schema.names == ["k", "count(*)"]
    assert LAYOUT.stored_schema.names == [KEY_GROUP, "k", WINDOW_START, "count(*)"]


def test_a_window_is_finished_when_the_watermark_is_past_its_end_and_the_lateness() -> None:
    assert LAYOUT.finished_us(None) is None
    assert LAYOUT.finished_us(100) == 75


def test_a_pane_is_reduced_to_one_row_per_key() -> None:
    merged = LAYOUT.merged_pane([rows("a", "b"), rows("a")])
    assert merged.to_pylist() == [{"k": "a", "count(*)": 2}, {"k": "b", "count(*)": 1}]
    assert LAYOUT.merged_pane([]).equals(LAYOUT.pane_schema.empty_table())


@pytest.fixture(params=[0, 1_000], ids=["apart", "together"])
def rows_min(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows with more rows than this on average are merged one by one."""
    monkeypatch.setattr(window_layout, "ROWS_OF_A_WINDOW_MIN", request.param)


@pytest.mark.usefixtures("rows_min")
def test_windows_do_not_mix() -> None:
    merged = LAYOUT.merged([WindowTables(10, [rows("a")]), WindowTables(0, [rows("a"), rows("a")])])
    assert merged.schema == SCHEMA
    starts = merged.column(WINDOW_START).cast(pa.int64()).to_pylist()
    assert list(zip(starts, merged.column("count(*)").to_pylist(), strict=True)) == [
        (10, 1),
        (0, 2),
    ]
    assert LAYOUT.merged([]).equals(SCHEMA.empty_table())


@pytest.mark.usefixtures("rows_min")
def test_windows_stay_in_their_order_with_many_keys() -> None:
    many = [str(n) for n in range(900)]
    merged = LAYOUT.merged([WindowTables(start, [rows(*many)]) for start in (0, 10, 20)])
    starts = merged.column(WINDOW_START).cast(pa.int64()).to_pylist()
    assert starts == sorted(starts)


def test_a_window_without_a_second_row_of_a_key_is_not_merged() -> None:
    window = WindowTables(10, [rows("a", "a"), rows("b")], is_reduced=True)
    assert LAYOUT.merged([window]).column("k").to_pylist() == ["a", "a", "b"]
    assert LAYOUT.merged([WindowTables(10, [], is_reduced=True)]).equals(SCHEMA.empty_table())


GROWING = StateLayout(("k",), (ROW_COUNT,), SCHEMA, 30, 10, lateness_us=5, grows_from_us=2)


def test_a_window_of_one_size_is_known_by_its_start() -> None:
    assert (LAYOUT.start_us(10), LAYOUT.end_us(10), LAYOUT.fires_us(10)) == (10, 30, 35)
    assert list(LAYOUT.panes_of(10)) == [10, 20]
    assert LAYOUT.last_label_us(10) == 10


def test_a_cumulative_window_is_known_by_its_last_pane() -> None:
    assert (GROWING.start_us(12), GROWING.end_us(12), GROWING.fires_us(12)) == (2, 22, 27)
    assert [list(GROWING.panes_of(label)) for label in (2, 22)] == [[2], [2, 12, 22]]
    assert list(GROWING.panes_of(-8)) == [-28, -18, -8]


def test_a_pane_of_cumulative_windows_is_finished_when_the_longest_one_is() -> None:
    assert [GROWING.last_label_us(pane) for pane in (2, 12, 22, 32)] == [22, 22, 22, 52]
    assert GROWING.finished_us(None) is None
    assert [GROWING.finished_us(watermark) for watermark in (36, 37, 66, 67)] == [-8, 22, 22, 52]
