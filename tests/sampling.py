"""Which tests ``make test`` runs, and which of their cases; ``--all-cases`` runs them all.

Tests that are marked ``large`` are left to ``make test-large``. Of the examples that Hypothesis
draws, half are tried.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

_EXAMPLES = 100
_CASE = re.compile(r"\[.*\]$", re.DOTALL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    what = "run the tests marked `large` too, and every case of those marked `sampled`"
    parser.addoption("--all-cases", action="store_true", help=what)
    what = "run the tests marked `large`, and no others"
    parser.addoption("--large", action="store_true", help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples are tried, before the tests are imported."""
    examples = _EXAMPLES if config.getoption("--all-cases") else _EXAMPLES // 2
    # No deadline: a busy machine is no failure.
    settings.register_profile("laminar", deadline=None, max_examples=examples)
    settings.load_profile("laminar")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without large tests if only those are run."""
    if not config.getoption("--large") or collection_path.suffix != ".py":
        return None
    return None if "mark.large" in collection_path.read_text(encoding="utf-8") else True


def drawn(examples: int) -> int:
    """Return how many examples to try of a test that names their number."""
    return examples * settings().max_examples // _EXAMPLES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is left out, so that the session's last line counts it."""
    if config.getoption("--all-cases"):
        return
    wanted = is_large if config.getoption("--large") else is_small_or_named(config)
    left = {item for item in items if not wanted(item)}
    left.update(left_out(item for item in items if item not in left))
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def is_large(item: pytest.Item) -> bool:
    """Return whether a test is left to ``make test-large``."""
    return item.get_closest_marker("large") is not None


def is_small_or_named(config: pytest.Config) -> Callable[[pytest.Item], bool]:
    """Return whether a test is run without ``--large``: a large one is if its file is named."""
    named = {config.invocation_params.dir / arg.partition("::")[0] for arg in config.args}
    files = {path for path in named if path.is_file()}
    return lambda item: not is_large(item) or item.path in files


@pytest.fixture
def every_case(request: pytest.FixtureRequest) -> bool:
    """Whether to run all cases that one test goes through; else some of them are enough."""
    return bool(request.config.getoption("--all-cases"))


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases to leave out: of a test that is ``sampled(n)`` about one of n is run.

    The names of the cases decide, so it is always the same ones, and they follow no pattern of the
    parameters. At least one case of each test is run, so one that is chosen by name is, too.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(_CASE.sub("", item.nodeid), []).append(item)
    chosen = {case for group in cases.values() for case in [*filter(_is_drawn, group)] or group[:1]}
    return [case for group in cases.values() for case in group if case not in chosen]


def _is_drawn(case: pytest.Item) -> bool:
    mark = case.get_closest_marker("sampled")
    return mark is None or crc32(case.nodeid.encode()) % mark.args[0] == 0
