"""``make test`` runs a sample of the cases and no large tests; ``make test-all`` runs all."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

PROGRAM = """
import pytest
from hypothesis import given, settings, strategies
from tests.sampling import drawn

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(60))
def test_many(case): pass

@pytest.mark.parametrize("case", range(2))
def test_few(case): pass

@pytest.mark.sampled(1_000_000)
class TestGroup:
    @pytest.mark.parametrize("case", "abc")
    def test_one(self, case): pass

DRAWN = [pytest.param(n, marks=pytest.mark.sampled(50)) for n in range(9)]

@pytest.mark.parametrize("case", [*DRAWN, "found"])
def test_drawn_and_found(case): pass

@pytest.mark.large
@pytest.mark.sampled(1_000_000)
@pytest.mark.parametrize("case", "ab")
def test_large(case): pass

@pytest.mark.parametrize("named", [0, 30])
def test_examples(named, record_property):
    tried = []

    @given(strategies.integers())
    def test(number):
        tried.append(number)

    (settings(max_examples=drawn(named))(test) if named else test)()
    record_property("tried", len(tried))
"""

SMALL = """
from pathlib import Path
Path("imported").touch()

def test_small(): pass
"""


@pytest.fixture(autouse=True)
def own_profile() -> Iterator[None]:
    """A session within this one chooses how many examples are tried, in the same process."""
    before = settings()
    yield
    settings.register_profile("laminar", before)
    settings.load_profile("laminar")


@pytest.fixture
def reports_of(pytester: pytest.Pytester):
    """Return the reports of the cases that a session with these arguments runs."""
    pytester.makeini("[pytest]\nmarkers =\n    large: large\n    sampled(n): one of n")
    pytester.makepyfile(test_program=PROGRAM, test_small=SMALL)

    def run(*arguments: str) -> list[pytest.TestReport]:
        found = pytester.inline_run("-p", "tests.sampling", "-p", "no:cacheprovider", *arguments)
        passed, _, failed = found.listoutcomes()
        assert failed == []
        return passed

    return run


@pytest.fixture
def run_of(reports_of):
    """Return the names of the cases that a session with these arguments runs."""
    return lambda *arguments: [name_of(report) for report in reports_of(*arguments)]


def name_of(report: pytest.TestReport) -> str:
    return report.nodeid.split("::", 1)[1]


def test_about_one_of_n_cases_is_run_and_of_other_tests_all(run_of) -> None:
    names = run_of()
    many = [name for name in names if name.startswith("test_many")]
    assert 10 < len(many) < 30
    assert {"test_few[0]", "test_few[1]", "test_drawn_and_found[found]"} <= set(names)
    assert names == run_of(), "always the same ones"


def test_of_each_test_at_least_one_case_is_run(run_of) -> None:
    assert [name for name in run_of() if "TestGroup" in name] == ["TestGroup::test_one[a]"]


def test_all_cases_are_run_if_asked_for(run_of) -> None:
    assert len(run_of("--all-cases")) == 60 + 2 + 3 + 10 + 2 + 2 + 1


def test_no_file_without_large_ones_is_imported_for_them(run_of, pytester) -> None:
    (pytester.path / "golden.bin").write_bytes(b"\xaf")  # Not every file among tests is a text.
    assert run_of("--large") == ["test_large[a]"]
    assert not (pytester.path / "imported").exists()
    run_of()
    assert (pytester.path / "imported").exists()


def test_large_ones_are_run_alone_or_if_their_file_is_named(run_of) -> None:
    assert [name for name in run_of() if "large" in name] == []
    assert run_of("--large") == ["test_large[a]"]
    assert [name for name in run_of("test_program.py") if "large" in name] == ["test_large[a]"]
    assert run_of("test_program.py::test_large") == ["test_large[a]"]


@pytest.mark.parametrize(("arguments", "tried"), [((), (50, 15)), (("--all-cases",), (100, 30))])
def test_of_drawn_examples_half_are_tried(reports_of, arguments, tried) -> None:
    reports = reports_of(*arguments, "-k", "test_examples")
    found = {name_of(report): dict(report.user_properties)["tried"] for report in reports}
    assert found == {"test_examples[0]": tried[0], "test_examples[30]": tried[1]}


def test_a_case_that_is_chosen_by_name_is_run(run_of) -> None:
    assert run_of("test_program.py::TestGroup::test_one[b]") == ["TestGroup::test_one[b]"]
