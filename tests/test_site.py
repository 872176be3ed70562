"""The documentation site: complete, built without a network, and true where a test can tell."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import click
import pytest

from laminar_core.cli.main import laminar
from laminar_core.configuration import all_settings
from laminar_core.errors import ErrorCode, LaminarError
from tests.spark.guides import blocks, missing_lines
from tests.test_errors import classes_of

laminar.load_all()  # Tests look at every command.

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WITHOUT_PROGRAMS = {"concepts.md", "comparison.md", "limits.md", "faq.md", "glossary.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--quiet", "--site-dir", place],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return place


@pytest.mark.large
def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    loaded = re.compile(r"<(?:script|img|iframe)[^>]*src=\"?https?:|<link[^>]*href=\"?https?:")
    assert [str(page) for page in pages if loaded.search(page.read_text())] == []
    # The theme fetches Mermaid from a server when a page has such a picture: ours are SVG files.
    assert [str(page) for page in pages if 'class="mermaid"' in page.read_text()] == []


def test_the_page_of_ideas_has_its_pictures(site: Path) -> None:
    page = (site / "concepts.html").read_text()
    for name in ("barrier", "alignment", "overtaking", "generations", "two-phases"):
        assert f'src="images/concept-{name}.svg"' in page
        assert "http://www.w3.org/2000/svg" in (site / f"images/concept-{name}.svg").read_text()


def test_files_outside_the_documentation_that_pages_link_to_are_in_the_site(site: Path) -> None:
    assert (site / "source/jobs/loop.py").read_text() == (ROOT / "jobs" / "loop.py").read_text()
    assert "source/jobs/loop.py" in (site / "pipelines.html").read_text()
    assert 'href="architecture.html"' in (site / "index.html").read_text()


def test_a_list_behind_a_paragraph_is_a_list(site: Path) -> None:
    page = (site / "adr" / "0012-loops.html").read_text()
    assert "<li><em>Log and forward.</em>" in page


def test_public_names_have_a_reference(site: Path) -> None:
    for page, name in (
        ("pipeline", "laminar_core.pipeline.CheckpointConfig"),
        ("connectors", "laminar_core.connectors.ParquetSink"),
        ("operators", "laminar_core.operators.agg.approx_percentile"),
        ("testing", "laminar_core.testing.Simulation"),
        ("orchestration", "laminar_core.orchestration.StreamSpec"),
    ):
        assert f'id="{name}"' in (site / "api" / f"{page}.html").read_text()


def test_a_page_that_explains_has_pictures_and_no_programs() -> None:
    for page in WITHOUT_PROGRAMS:
        assert {block.language for block in blocks(page)} <= {"text"}, page


def test_the_program_of_the_page_about_errors_runs() -> None:
    (program,) = [block.text for block in blocks("errors.md") if block.language == "python"]
    exec(compile(program, "docs/errors.md", "exec"), {})


def rows(page: str) -> list[list[str]]:
    lines = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_error_code_is_explained_once() -> None:
    explained = Counter(
        match[1] for row in rows("errors.md") if (match := re.fullmatch(r"`([a-z-]+)`", row[0]))
    )
    assert explained == Counter(code.value for code in ErrorCode)
    assert all(len(row) == 3 and all(row) for row in rows("errors.md"))


def test_every_class_of_errors_is_explained_with_its_exit_code() -> None:
    found = {
        name[1]: int(row[1])
        for row in rows("errors.md")
        if (name := re.match(r"`([A-Z]\w+)`", row[0]))
    }
    assert found == {one.__name__: one.exit_code for one in classes_of(LaminarError)[1:]}


def messages() -> str:
    """Every string of the product, one a line; what is filled in is …."""
    found = []
    for path in (ROOT / "laminar_core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_message_on_the_page_of_troubles_is_one_that_laminar_prints() -> None:
    of_the_system = {"No space left on device"}
    page = (DOCS / "troubleshooting.md").read_text()
    tables = re.findall(r"^\| message \|.*?\n\n", page + "\n", re.DOTALL | re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[2:] if line]
    quoted = {text for line in lines for text in re.findall(r"`([^`]+)`", line.split("|")[1])}
    known = messages()
    assert len(quoted) > 20
    assert [text for text in sorted(quoted - of_the_system) if text not in known] == []


def commands(group: click.Group, name: str = "laminar") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {name: group}
    for word, command in group.commands.items():
        inner = command if isinstance(command, click.Group) else None
        found |= commands(inner, f"{name} {word}") if inner else {f"{name} {word}": command}
    return found


def test_every_command_and_option_on_the_page_of_the_command_line_exists() -> None:
    page = (DOCS / "cli.md").read_text()
    known = commands(laminar)
    options = {option for command in known.values() for p in command.params for option in p.opts}
    options |= {
        option for command in known.values() for p in command.params for option in p.secondary_opts
    }
    options |= {switch for setting in all_settings() for switch in setting.flag.switches}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) - options <= {"--help"}
    top = {name.split()[1] for name in known if " " in name}
    assert [word for word in sorted(top) if f"laminar {word}" not in page] == []


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    terms = [row[0] for row in rows("glossary.md")[1:]]
    assert terms == sorted(set(terms), key=str.lower)


def test_the_page_about_installing_names_what_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (DOCS / "install.md").read_text()
    named = {row[0].strip("`") for row in rows("install.md") if row[0].startswith("`")}
    assert set(project["optional-dependencies"]) <= named
    assert f"`{project['name']}`" in page


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("checkpoint 7 is whole", "  checkpoint 12 is  whole\n", []),
        ("checkpoint 7 … whole\n…", "checkpoint 12 is not whole", []),
        ("checkpoint 7 is whole", "checkpoint 12 is damaged", ["checkpoint 7 is whole"]),
        ("1,234 rows", "99 rows", []),
    ],
)
def test_shown_output_is_compared_without_its_numbers(
    shown: str, printed: str, missing: list[str]
) -> None:
    assert missing_lines(shown, printed) == missing
