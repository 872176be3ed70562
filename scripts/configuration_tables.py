"""Writes the tables of docs/configuration.md from the models; a test compares them."""

import re
from pathlib import Path

from laminar_core.configuration import Configuration, all_settings
from laminar_core.options import Setting, sections_of

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
HEAD = "| option | in the file | allowed | default | meaning |\n|---|---|---|---|---|\n"


def row(setting: Setting) -> str:
    """Return one line of a table."""
    default = setting.default
    shown = "none" if default is None else "" if default in ((), {}) else str(default)
    allowed = setting.allowed.replace("|", ", ") or "true, false"
    names = ", ".join(f"`{name}`" for name in (setting.flag.name, *setting.flag.switches))
    return f"| {names} | `{setting.name}` | {allowed} | {shown} | {setting.description} |\n"


def tables() -> dict[str, str]:
    """Return a table for each section, and one with an empty name for the other options."""
    return {
        section: HEAD + "".join(row(each) for each in all_settings() if each.section == section)
        for section in ("", *sections_of(Configuration))
    }


def updated(page: str) -> str:
    """Return the page with all tables as they should be."""
    for section, table in tables().items():
        mark = f"<!-- table: {section or 'job'} -->\n\n"
        page = re.sub(f"{re.escape(mark)}(\\|.*\n)*", lambda _, new=mark + table: new, page)
    return page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
