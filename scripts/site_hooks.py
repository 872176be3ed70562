"""Extensions of MkDocs: pages from outside ``docs``, and links that leave it.

The Markdown files are also read in the repository, where links are relative to the file and code
blocks carry words for the tests (``bash stopped``). Both are translated here, so that no page has
to be written for the site.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site that stand at the top of the repository."""

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
_FENCE_WORDS = re.compile(r"^```(\w+) (?!title=).*$", re.MULTILINE)
_LIST_ITEM = re.compile(r"(- |\d+\. )")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the list of decisions, so that a new record needs no line in ``mkdocs.yml``."""
    assert config.nav is not None
    records = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    for section in config.nav:
        for entries in section.values():
            for entry in entries:
                if "Decisions" in entry:
                    entry["Decisions"] = [f"adr/{name}" for name in records]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top of the repository, and each file that a page links to."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    sources = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    for linked in sorted({target for page in sources for target in _outside(*page)}):
        copy = File.generated(config, f"source/{linked}", abs_src_path=str(ROOT / linked))
        files.append(copy)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Translate links and code blocks of one page."""
    place = page.file.src_uri

    def translated(match: re.Match[str]) -> str:
        return _on_the_site(place, match[1]) + match[2]

    return _with_space_before_lists(_FENCE_WORDS.sub(r"```\1", _LINK.sub(translated, markdown)))


def _with_space_before_lists(markdown: str) -> str:
    """Put an empty line between a paragraph and the list behind it, which Python-Markdown needs."""
    lines: list[str] = []
    in_code = in_list = False
    for line in markdown.split("\n"):
        starts_item = not in_code and _LIST_ITEM.match(line) is not None
        if starts_item and not in_list and lines and lines[-1].strip():
            lines.append("")
        if line.startswith("```"):
            in_code = not in_code
        in_list = starts_item or (in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines)


def _repository_path(place: str, link: str) -> str:
    """Path from the top of the repository that ``link`` on the page ``place`` leads to."""
    folder = PurePosixPath(PAGES.get(place, f"docs/{place}")).parent
    return str((ROOT / folder / link).resolve().relative_to(ROOT))


def _outside(place: str, markdown: str) -> set[str]:
    """Files outside ``docs`` that a page links to and that are no pages themselves."""
    paths = {_repository_path(place, match[1]) for match in _LINK.finditer(markdown)}
    return {
        path
        for path in paths
        if not path.startswith("docs/") and path not in PAGES.values() and (ROOT / path).is_file()
    }


def _on_the_site(place: str, link: str) -> str:
    path = _repository_path(place, link)
    names = {source: name for name, source in PAGES.items()}
    if path in names:
        target = names[path]
    elif path.startswith("docs/"):
        target = path.removeprefix("docs/")
    else:
        target = f"source/{path}"
    up = "../" * (len(PurePosixPath(place).parts) - 1)
    return up + target
