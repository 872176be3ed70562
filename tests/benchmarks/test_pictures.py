"""A picture has a line per column, and a stroke where values differ."""

from xml.etree import ElementTree as ET

from benchmarks.pictures import picture
from benchmarks.record import figures_of
from benchmarks.result import Result
from benchmarks.tables import Table
from tests.benchmarks.test_record import record

TABLE = Table(
    "fast",
    {"1 key": "1", "10 keys": "10", "100 keys": "100"},
    {"a & b": "a_{}", "c": "c_{}"},
    picture="Growth <of it>",
)
FIGURES = figures_of(
    [
        [
            Result("a_1", 10.0, "ms", "lower"),
            Result.of_rounds("a_10", [50.0, 100.0, 400.0], "ms", "lower"),
            Result("a_100", 1_000.0, "ms", "lower"),
            Result("c_1", 10.0, "ms", "lower"),
            Result("c_100", 10.0, "ms", "lower"),
        ]
    ]
)
SVG = "{http://www.w3.org/2000/svg}"


def test_equal_factors_are_equal_distances_and_missing_figures_no_points() -> None:
    root = ET.fromstring(picture(TABLE, record(figures=FIGURES)))
    lines = [line.attrib["points"] for line in root.iter(f"{SVG}polyline")]
    heights = [[float(p.split(",")[1]) for p in line.split()] for line in lines]
    assert heights == [[280.0, 170.0, 60.0], [280.0, 280.0]]
    strokes = [p for p in root.iter(f"{SVG}path") if "stroke" in p.attrib]
    assert len(strokes) == 1
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert words[0] == "Growth <of it>, ms"
    assert {"10", "100", "1,000", "1 key", "100 keys", "a & b", "c"} <= {*words}
