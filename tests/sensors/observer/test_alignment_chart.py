"""The chart of one checkpoint's alignment: true lengths, bounded size, valid SVG."""

from base64 import b64decode
from xml.etree import ElementTree as ET

import pytest

from laminar_core.sensors.observer.alignment_chart import BARS_MAX, Bar, bars_of, chart, svg
from tests.records.manifests import alignment, edge, inflight, unaligned

SVG = "{http://www.w3.org/2000/svg}"


def texts(bars: list[Bar]) -> list[str]:
    return [node.text for node in ET.fromstring(svg(bars)).iter(f"{SVG}text")]


def lengths(bars: list[Bar]) -> list[int]:
    paths = ET.fromstring(svg(bars)).iter(f"{SVG}path")
    return [int(path.get("d").partition("h")[2]) for path in paths]


def test_lengths_are_in_proportion() -> None:
    assert lengths([Bar("a[0]", 100, 300), Bar("a[1]", 50, 0)]) == [30, 90, 15]


def test_a_bar_says_what_it_shows() -> None:
    assert texts([Bar("keyed[1]", 3.4, 1200.2, 340, 2)]) == [
        "keyed[1]",
        "3 + 1200 ms, 340 rows on 2 channels",
    ]


def test_names_are_shortened_and_cannot_break_the_picture() -> None:
    (label, _) = texts([Bar("<&> a very long name of vertex[12]", 1, 1)])
    assert label == "…ame of vertex[12]"
    assert texts([Bar("<&>", 1, 1)])[0] == "<&>"


def test_the_slowest_are_shown_and_the_others_counted() -> None:
    bars = [Bar(f"a[{index}]", 1, 100 - index) for index in range(BARS_MAX + 5)]
    assert texts(bars)[-1] == "and 5 faster ones"
    assert len(texts(bars)) == 2 * BARS_MAX + 1


@pytest.mark.parametrize(
    ("bar", "is_drawn"),
    [
        pytest.param(Bar("a[0]", 0.2, 0.3), False, id="nothing to see"),
        pytest.param(Bar("a[0]", 0.6, 0.6), True, id="a visible time"),
        pytest.param(Bar("a[0]", 0, 0, 10, 1), True, id="rows in flight"),
    ],
)
def test_what_has_nothing_to_show_is_not_drawn(bar: Bar, *, is_drawn: bool) -> None:
    assert (chart([bar]) is not None) == is_drawn
    assert chart([]) is None


def test_the_picture_is_inside_the_markdown() -> None:
    found = chart([Bar("a[0]", 1, 1)])
    data = found.partition("base64,")[2].removesuffix(")")
    assert b64decode(data).decode() == svg([Bar("a[0]", 1, 1)])


def test_bars_are_of_subtasks_with_what_was_overtaken_before_them() -> None:
    found = bars_of(
        unaligned(
            alignment=(
                alignment(mode="unaligned", alignment_ms=1.0),
                alignment(mode="unaligned", subtask_index=1, alignment_ms=9.0),
            ),
            inflight_data=(
                inflight(row_count=200),
                inflight(row_count=50, input_id=0, sender=0, path="a"),
                inflight(edge=edge(downstream="sink"), input_id=2, path="b"),
            ),
        )
    )
    assert [(bar.label, bar.inflight_rows, bar.channels) for bar in found] == [
        ("keyed[1]", 0, 0),
        ("keyed[0]", 250, 2),
    ]
