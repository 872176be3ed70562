"""The chart of one checkpoint's alignment: true lengths, small enough to be drawn in the page."""

from base64 import b64decode
from xml.etree import ElementTree as ET

import pytest

from laminar_core.records.channel_entries import ChannelAlignment
from laminar_core.sensors.observer.alignment_chart import MARKDOWN_MAX, Bar, bars_of, chart, svg
from tests.records.manifests import alignment, edge, inflight, unaligned

SVG = "{http://www.w3.org/2000/svg}"


def drawing(markdown: str | None) -> ET.Element:
    assert markdown is not None
    data = markdown.partition("base64,")[2].removesuffix(")")
    return ET.fromstring(b64decode(data))


def texts(bars: list[Bar]) -> list[str]:
    return [str(node.text) for node in drawing(chart(bars)).iter(f"{SVG}text")]


def lengths(bars: list[Bar]) -> list[list[str]]:
    """The lengths of dark bars, and of light ones."""
    _, *paths = ET.fromstring(svg(bars, len(bars))).iter(f"{SVG}path")
    return [[line.partition("h")[2] for line in path.get("d", "").split("M")[1:]] for path in paths]


def test_lengths_are_in_proportion_and_overtaken_channels_are_light() -> None:
    bars = [Bar("a[0]", 400), Bar("a[1]", 100), Bar("a[2]", None, 7)]
    assert lengths(bars) == [["120", "30"], ["120"]]


@pytest.mark.parametrize(
    ("bar", "said"),
    [
        (Bar("a[0]→b[1]", 1200.2), "a[0]→b[1] 1200 ms"),
        (Bar("a[0]→b[1]", 3, 340), "a[0]→b[1] 3 ms, 340 rows overtaken"),
        (Bar("a[0]→b[1]", None, 340), "a[0]→b[1] 340 rows overtaken"),
        (Bar("<&>[0]", 9), "<&>[0] 9 ms"),
    ],
)
def test_a_bar_says_what_it_shows(bar: Bar, said: str) -> None:
    assert texts([bar]) == [said]


@pytest.mark.parametrize("count", [1, 5, 12, 5_000])
def test_dagster_draws_it_in_the_page_however_many_channels_there_are(count: int) -> None:
    name = "…source-of-all[999]→…keyed-windows[999]"
    bars = [Bar(name, 100_000.0 - index, 1_000_000) for index in range(count)]
    found = chart(bars)
    assert found is not None
    assert len(found) <= MARKDOWN_MAX
    shown = texts(bars)
    assert len(shown) == 1 or len(shown) > 3
    if count == 5_000:
        assert shown[-1] == f"and {count - len(shown) + 1} more"


@pytest.mark.parametrize(
    ("bar", "is_drawn"),
    [
        pytest.param(Bar("a[0]", 0.9), False, id="nothing to see"),
        pytest.param(Bar("a[0]", 1.2), True, id="a visible time"),
        pytest.param(Bar("a[0]", 0, 10), True, id="rows in flight"),
    ],
)
def test_what_has_nothing_to_show_is_not_drawn(bar: Bar, *, is_drawn: bool) -> None:
    assert (chart([bar]) is not None) == is_drawn
    assert chart([]) is None


def test_bars_are_of_channels_with_what_was_overtaken_on_them() -> None:
    slowest = [("source", 0, 40.0), ("a-source-with-a-long-name", 1, None)]
    channels = tuple(
        ChannelAlignment(input_id=number, upstream=name, sender=sender, barrier_ms=wait_ms)
        for number, (name, sender, wait_ms) in enumerate(slowest)
    )
    found = bars_of(
        unaligned(
            alignment=(
                alignment(mode="unaligned", alignment_ms=40.0, slowest_channels=channels),
                alignment(mode="unaligned", subtask_index=1, alignment_ms=9.0),
            ),
            inflight_data=(
                inflight(row_count=200, sender=0),
                inflight(
                    row_count=50, input_id=0, sender=1, path="a", edge=edge(upstream=slowest[1][0])
                ),
                inflight(edge=edge(downstream="sink"), input_id=2, path="b"),
            ),
        )
    )
    assert found == [
        Bar("source[0]→keyed[0]", 40.0, 200),
        Bar("…h-a-long-name[1]→keyed[0]", None, 50),
        Bar("keyed[1]", 9.0),
    ]
