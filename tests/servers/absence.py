"""Skips or fails a test whose server is not there, with the reason that ``make servers`` gave."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
REQUIRED = "required"


def verdict(name: str, root: Path, demand: str | None) -> tuple[bool, str]:
    """Return whether an absent server is a failure, and the reason.

    Where servers are required, only the reason that ``make servers`` wrote down excuses a server:
    then the machine cannot have it.
    """
    written = root / "build" / "servers" / f"{name}.absent"
    if written.exists():
        return False, f"no {name}: {written.read_text().strip()}"
    return demand == REQUIRED, f"no {name}: `make servers` gets it"


def server_is_absent(name: str) -> NoReturn:
    is_failure, why = verdict(name, ROOT, os.environ.get("LAMINAR_SERVERS"))
    if is_failure:
        pytest.fail(why)
    pytest.skip(why, allow_module_level=True)
