import re
from pathlib import Path

from laminar_core.state import limits
from laminar_core.state.paths import KEY_LENGTH_MAX, PART_LENGTH_MAX

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


def test_the_documented_limits_are_the_ones_that_hold():
    section = DOCUMENT.partition("## Limits")[2].partition("\n## ")[0]
    said = re.findall(
        r"[0-9][0-9,]*", "".join(re.findall(r"^\|[^|]*\|(.*)\|$", section, re.MULTILINE))
    )
    assert [int(number.replace(",", "")) for number in said] == [
        limits.RECORD_BYTES_MAX,
        limits.FILE_BYTES_MAX,
        limits.NUMBER_MAX,
        limits.NUMBER_IMPORTED_MAX,
        limits.PARALLELISM_MAX,
        limits.TEXT_LENGTH_MAX,
        limits.ITEMS_MAX,
        limits.DEPTH_MAX,
        KEY_LENGTH_MAX,
        PART_LENGTH_MAX,
    ]
