"""What ``make test`` leaves out, and ``make test-all`` runs."""

import pytest

PROGRAM = """
import pytest

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(7))
def test_many(case): pass

@pytest.mark.parametrize("case", range(2))
def test_few(case): pass

@pytest.mark.sampled(2)
class TestGroup:
    @pytest.mark.parametrize("case", "abc")
    def test_one(self, case): pass
"""
EVERY_THIRD = ["test_many[0]", "test_many[3]", "test_many[6]"]


@pytest.fixture
def run_of(pytester: pytest.Pytester):
    """Return the names of the cases that a session with these arguments runs."""
    pytester.makeini("[pytest]\nmarkers =\n    sampled(n): one of n")
    pytester.makepyfile(test_program=PROGRAM)

    def run(*arguments: str) -> list[str]:
        found = pytester.inline_run("-p", "tests.sampling", "-p", "no:cacheprovider", *arguments)
        passed, _, _ = found.listoutcomes()
        return [report.nodeid.split("::", 1)[1] for report in passed]

    return run


def test_one_of_n_cases_is_run_and_of_other_tests_all(run_of) -> None:
    few = ["test_few[0]", "test_few[1]"]
    assert run_of() == [*EVERY_THIRD, *few, "TestGroup::test_one[a]", "TestGroup::test_one[c]"]


def test_all_cases_are_run_if_asked_for(run_of) -> None:
    assert len(run_of("--all-cases")) == 7 + 2 + 3


def test_a_case_that_is_chosen_by_name_is_run(run_of) -> None:
    assert run_of("test_program.py::test_many[4]") == ["test_many[4]"]
