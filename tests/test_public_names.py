"""The names that users import exist, documentation names no others, and each is described."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.guides import blocks

ROOT = Path(__file__).parent.parent
PUBLIC = {
    "laminar_core": "pipeline.md",
    "laminar_core.connectors": "connectors.md",
    "laminar_core.errors": None,  # errors.md describes them by what to do.
    "laminar_core.operators": "operators.md",
    "laminar_core.orchestration": "orchestration.md",
    "laminar_core.orchestration.components": "orchestration.md",
    "laminar_core.pipeline": "pipeline.md",
    "laminar_core.pipeline.events": "events.md",
    "laminar_core.resources": "orchestration.md",
    "laminar_core.spark": "pipeline.md",
    "laminar_core.store": "store.md",
    "laminar_core.testing": "testing.md",
}
"""Every package that users import from, and the page of the reference that describes its names."""

PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md"))
SHIPPED = sorted((ROOT / "jobs").glob("*.py"))
OF_THE_SHIPPED_JOBS = "laminar_core.jobs"


NAMED = {
    "laminar_core.job": "the name of a logger",
    "laminar_core.operators.stream_executor": "imported by its own module (ADR 0057)",
    "laminar_core.orchestration.definitions": "Dagster loads it by this name",
    "laminar_core.spark.daemon": "Spark loads it by this name",
}
"""Modules that pages may name, although they are no public packages."""


def names_of(package: str) -> list[str]:
    return importlib.import_module(package).__all__


def imports(program: str) -> Iterator[tuple[str, str]]:
    """Package and name of everything that a program imports from Laminar."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("laminar_core"):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, "") for name in names if name.startswith("laminar_core"))


def not_public(program: str) -> list[tuple[str, str]]:
    return [
        (package, name)
        for package, name in imports(program)
        if not package.startswith(OF_THE_SHIPPED_JOBS)
        and (package not in PUBLIC or (name and name not in names_of(package)))
    ]


def named(text: str) -> set[str]:
    """Dotted names of Laminar in the prose of a page: in code spans, outside of blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", prose)
    return {name for span in spans for name in re.findall(r"\blaminar_core(?:\.\w+)+", span)}


def is_public(name: str) -> bool:
    package, _, last = name.rpartition(".")
    return name in PUBLIC or (package in PUBLIC and last in names_of(package))


@pytest.mark.parametrize("package", PUBLIC)
def test_what_is_public_exists_and_is_in_order(package: str) -> None:
    names = names_of(package)
    assert names == sorted(set(names))
    module = importlib.import_module(package)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_pages_import_only_what_is_public(page: str) -> None:
    programs = [block.text for block in blocks(page) if block.language == "python"]
    assert [found for program in programs for found in not_public(program)] == []


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_the_prose_of_pages_names_only_what_is_public(page: str) -> None:
    found = named((ROOT / "docs" / page).read_text())
    assert sorted(name for name in found - NAMED.keys() if not is_public(name)) == []


def test_every_module_that_pages_may_name_is_named() -> None:
    texts = [(ROOT / "docs" / page).read_text() for page in PAGES]
    assert NAMED.keys() <= set().union(*map(named, texts))


def test_every_way_to_name_a_module_is_seen() -> None:
    text = """`laminar_core.driver.events`, `x=laminar_core.spark.daemon`, laminar_core.codec
```python
import laminar_core.state  # `laminar_core.records`
```
"""
    assert named(text) == {"laminar_core.driver.events", "laminar_core.spark.daemon"}
    assert not is_public("laminar_core.driver.events")
    assert is_public("laminar_core.pipeline.events.Finished")


@pytest.mark.parametrize("job", SHIPPED, ids=[path.name for path in SHIPPED])
def test_jobs_to_copy_import_only_what_is_public(job: Path) -> None:
    assert not_public(job.read_text()) == []


def test_an_import_of_something_else_is_noticed() -> None:
    program = "from laminar_core.connectors.plain import plain_schema\nimport laminar_core.driver"
    assert sorted(not_public(program)) == [
        ("laminar_core.connectors.plain", "plain_schema"),
        ("laminar_core.driver", ""),
    ]


@pytest.mark.parametrize(("package", "page"), [(p, page) for p, page in PUBLIC.items() if page])
def test_the_reference_describes_what_is_public_and_nothing_else(package: str, page: str) -> None:
    text = (ROOT / "docs" / "api" / page).read_text()
    described = re.findall(rf"^::: {re.escape(package)}\.(\w+)$", text, re.MULTILINE)
    assert sorted(described) == [name for name in names_of(package) if name != "__version__"]
