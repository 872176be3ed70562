"""Which cases of a test with many cases ``make test`` runs; ``--all-cases`` runs them all."""

import re
from collections import Counter
from collections.abc import Iterable

import pytest

_CASE = re.compile(r"\[.*\]$", re.DOTALL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    what = "run every case of the tests that are marked `sampled`"
    parser.addoption("--all-cases", action="store_true", help=what)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is left out, so that the session's last line counts it."""
    left = [] if config.getoption("--all-cases") else left_out(items)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases to leave out: of each test that is ``sampled(n)`` every nth is run.

    The first case of a test is always run, so one that is chosen by name is, too.
    """
    seen: Counter[str] = Counter()
    left: list[pytest.Item] = []
    for item in items:
        for mark in item.iter_markers("sampled"):
            test = _CASE.sub("", item.nodeid)
            seen[test] += 1
            if (seen[test] - 1) % mark.args[0]:
                left.append(item)
            break
    return left
