"""The digest of code: what changes it, and what does not."""

import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from laminar_core.codec.code_digest import code_digest

ORIGINAL = """
    LIMIT = 3

    def helper(x):
        return x + LIMIT

    class Sum:
        def __init__(self, scale=1):
            self.scale = scale

        def merge(self, left, right):
            return helper(left + right) * self.scale
"""


def digest_of(source: str, folder: Path, call: str = "Sum()") -> str:
    """Compute it in a process of its own, as every worker and every restart does."""
    (folder / "theirs.py").write_text(textwrap.dedent(source))
    program = (
        "from laminar_core.codec.code_digest import code_digest\n"
        f"import theirs\nprint(code_digest(theirs.{call}))"
    )
    command = [sys.executable, "-B", "-c", program]
    root = Path(__file__).parents[2]
    path = {"PYTHONPATH": f"{root}:{folder}", "PYTHONHASHSEED": "random"}
    return subprocess.run(command, env=path, check=True, capture_output=True, text=True).stdout


def test_processes_agree_and_layout_does_not_matter(tmp_path: Path) -> None:
    before = digest_of(ORIGINAL, tmp_path)
    assert digest_of(ORIGINAL, tmp_path) == before
    commented = ORIGINAL.replace(
        "return x", '"""Say what."""\n        # why\n        return  x'
    ).replace("LIMIT = 3", "\n\n    LIMIT   =  3")
    assert digest_of(commented, tmp_path) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("left + right", "left - right"), ("x + LIMIT", "x - LIMIT"), ("LIMIT = 3", "LIMIT = 4")],
)
def test_code_helpers_and_constants_count(tmp_path: Path, old: str, new: str) -> None:
    changed = digest_of(ORIGINAL.replace(old, new), tmp_path)
    assert changed != digest_of(ORIGINAL, tmp_path)


def test_what_an_instance_holds_counts(tmp_path: Path) -> None:
    assert digest_of(ORIGINAL, tmp_path, "Sum(2)") != digest_of(ORIGINAL, tmp_path)


def adder(step: int):
    def add(x: int, more: int = 0) -> int:
        return x + step + more

    return add


def test_values_closed_over_defaults_and_bound_arguments_count() -> None:
    assert code_digest(adder(1)) == code_digest(adder(1)) != code_digest(adder(2))
    assert code_digest(partial(adder, 1)) != code_digest(partial(adder, 2))


def test_code_without_a_source_is_digested_by_its_instructions() -> None:
    same = [eval("lambda x: x + 1"), eval("lambda x:   x + 1")]
    assert code_digest(same[0]) == code_digest(same[1])
    assert code_digest(same[0]) != code_digest(eval("lambda x: x + 2"))


def test_things_that_hold_each_other_end() -> None:
    class Node:
        other: object

    one = Node()
    one.other = one
    assert len(code_digest(one)) == 64
    assert code_digest({"a": {1, 2}, "b": [None, b"x"]}) == code_digest(
        {"b": [None, b"x"], "a": {2, 1}}
    )
