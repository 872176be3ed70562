"""Every name that is imported from this repository is in the module that it is imported from."""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.test_tidy import MODULES, broken, places_of, tree_of


@cache
def defined_in(module: str) -> frozenset[str]:
    """Return the names that can be imported from a module, except those of its submodules."""
    return frozenset(_names(tree_of(module)))


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.alias):
            yield child.asname or child.name.partition(".")[0]
        elif isinstance(child, ast.Name):
            if isinstance(child.ctx, ast.Store):
                yield child.id
        else:
            yield from _names(child)


def names_that_are_nowhere(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported from a module of this repository and is not there."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        module = next(iter(places_of(node.module)), None)
        if module is None or "__getattr__" in defined_in(module):
            continue
        for name in (alias.name for alias in node.names):
            if name not in defined_in(module) and not places_of(f"{node.module}.{name}"):
                yield f"{node.module}.{name}"


def test_every_name_that_is_imported_from_here_is_there() -> None:
    """Some of these lines are first met late in the suite, or by a command for campaigns."""
    assert broken(MODULES, lambda module: [*names_that_are_nowhere(tree_of(module))]) == {}


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        ("from tests.test_tidy import SKIP, places_of, Path", []),
        ("from tests import test_tidy", []),
        ("from laminar_core.jobs import payments", []),
        ("def f():\n    from tests.test_tidy import gone", ["tests.test_tidy.gone"]),
        ("from tests.test_tidy import node", ["tests.test_tidy.node"]),
        ("from os import gone", []),
    ],
)
def test_only_names_that_are_nowhere_are_reported(line: str, missed: list[str]) -> None:
    assert [*names_that_are_nowhere(ast.parse(line))] == missed
