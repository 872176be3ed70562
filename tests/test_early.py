"""Tests that begin first."""

import pytest

PROGRAM = """
import pytest

def test_short(): pass

@pytest.mark.early
class TestLong:
    def test_one(self): pass
    def test_two(self): pass

def test_last(): pass
"""


def test_early_ones_come_first_and_the_rest_stays_in_order(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    early: begins first")
    pytester.makepyfile(PROGRAM)
    found = pytester.inline_run("-p", "tests.early", "-p", "no:cacheprovider")
    passed, _, _ = found.listoutcomes()
    assert [report.nodeid.rsplit("::", 1)[1] for report in passed] == [
        "test_one",
        "test_two",
        "test_short",
        "test_last",
    ]
