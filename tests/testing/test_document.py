"""The programs of docs/testing.md run as they are written there; its tables name what there is."""

import re
from pathlib import Path

from laminar_core.testing.disaster_kinds import KINDS
from laminar_core.testing.invariants import CHECKS
from laminar_core.testing.store_disasters import STORE_KINDS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def test_the_programs_run() -> None:
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(programs) == 3
    names: dict = {}
    for program in programs:
        exec(compile(program, "docs/testing.md", "exec"), names)
    assert names["report"].passed


def test_every_invariant_and_every_kind_of_disaster_is_explained() -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE))
    tables = sections["A campaign"] + sections["Disasters"]
    rows = re.findall(r"^\| (`.*?) \|", tables, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert named == KINDS.keys() | STORE_KINDS.keys() | CHECKS.keys()
