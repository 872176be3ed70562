"""Which rows of sessions touch, and which version of a session is the newest."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.state.session_rows import (
    by_key_and_time,
    find_sessions,
    joined_lists,
    key_codes,
    newest_sessions,
    times_of,
)
from laminar_core.units import US_MAX

SCHEMA = pa.schema(
    [
        ("key_group", pa.int32()),
        ("user", pa.string()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("_expires", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
    ]
)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def table(*rows: tuple) -> pa.Table:
    lines = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(lines, schema=SCHEMA)


def test_sessions_of_a_key_that_touch_are_one_and_others_are_not() -> None:
    codes = integers(7, 3, 7, 7, 3)
    starts, ends = integers(0, 5, 10, 21, 0), integers(10, 9, 20, 30, 4)
    sessions = find_sessions(codes, starts, ends)
    assert sessions.of_rows().tolist() == [2, 1, 2, 3, 0]
    assert sessions.ends.tolist() == [4, 9, 20, 30]


def test_a_long_session_reaches_over_shorter_ones() -> None:
    sessions = find_sessions(integers(1, 1, 1), integers(0, 2, 50), integers(60, 4, 55))
    assert sessions.of_rows().tolist() == [0, 0, 0]
    assert sessions.ends.tolist() == [60]


def test_no_rows_are_no_sessions() -> None:
    nothing = integers()
    sessions = find_sessions(nothing, nothing, nothing)
    assert len(sessions.firsts) == 0
    assert joined_lists(pa.array([], pa.list_(pa.int64())), sessions).to_pylist() == []


def test_lists_of_rows_become_the_list_of_their_session() -> None:
    sessions = find_sessions(integers(7, 3, 7, 7), integers(5, 0, 0, 90), integers(9, 4, 6, 99))
    lists = pa.array([[9], [9, 1], [2, 3], [4], []], pa.list_(pa.int64())).slice(1)
    assert joined_lists(lists, sessions).to_pylist() == [[2, 3], [4, 9, 1], []]


@pytest.mark.parametrize("scale", [1, US_MAX // 200], ids=["near", "far apart"])
@pytest.mark.parametrize("codes_are", [np.int64, np.uint64])
def test_sessions_are_those_of_a_loop(scale: int, codes_are: type) -> None:
    """Also where code and time together need more than 64 bits."""
    for seed in range(150):
        random = Random(seed)
        rows = [
            (random.randrange(3), start := random.randrange(-50, 50), start + random.randrange(9))
            for _ in range(random.randrange(1, 20))
        ]
        codes = np.array([row[0] for row in rows], codes_are) * codes_are(2**60)
        starts, ends = (scale * integers(*(row[n] for row in rows)) for n in (1, 2))
        found = find_sessions(codes, starts, ends)
        expected: list[list[int]] = []
        for key, start, end in sorted(rows):
            if expected and expected[-1][0] == key and start <= expected[-1][2]:
                expected[-1][2] = max(expected[-1][2], end)
            else:
                expected.append([key, start, end])
        assert (found.ends // scale).tolist() == [session[2] for session in expected]
        firsts = found.order[found.firsts]
        assert (starts[firsts] // scale).tolist() == [session[1] for session in expected]


def test_sorted_tables_behind_each_other_are_sorted_by_key_and_time() -> None:
    codes = np.array([1, 1, 9, 1, 9], np.uint64)
    assert by_key_and_time(codes, integers(5, 7, 3, 6, 1)).tolist() == [0, 3, 1, 4, 2]


def test_equal_keys_have_equal_codes() -> None:
    floats = pa.chunked_array([[0.0, -0.0, float("nan")], [float("nan"), None, None]])
    names = pa.chunked_array([pa.array(["a", "a", "b", "b", None, "a"]).dictionary_encode()])
    codes = key_codes([floats, names], 6)
    assert codes[0] == codes[1]
    assert codes[2] == codes[3]
    assert len(set(codes.tolist())) == 4


def test_the_newest_version_of_a_session_covers_those_before() -> None:
    first = table((0, "a", 0, 10, 1), (0, "a", 20, 30, 2), (3, None, 5, 9, 3))
    second = table((0, "a", 0, 30, 4), (1, "b", 0, 10, 5))
    third = table((3, None, 40, 50, 6))
    newest = newest_sessions([first, second, third], ("user",), SCHEMA)
    assert newest.schema == SCHEMA
    assert newest.column("n").to_pylist() == [4, 5, 3, 6]
    assert times_of(newest, "window_start").tolist() == [0, 0, 5, 40]


def test_of_no_tables_there_is_nothing() -> None:
    assert newest_sessions([], ("user",), SCHEMA).num_rows == 0
