"""The names that users import exist, documentation imports no others, and each is described."""

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
    "laminar_core.pipeline": "pipeline.md",
    "laminar_core.resources": "orchestration.md",
    "laminar_core.spark": "pipeline.md",
    "laminar_core.store": "store.md",
    "laminar_core.testing": "testing.md",
}
"""Every package that users import from, and the page of the reference that describes its names."""

PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md"))
SHIPPED = sorted((ROOT / "jobs").glob("*.py"))
OF_THE_SHIPPED_JOBS = "laminar_core.jobs"


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
