"""A program whose file is changed while it runs."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

CLASS = "class Fee:\n    def add(self, batch):\n        return batch\n"
FUNCTION = "def keep(batch):\n    return batch\n"
INNER = "    def inner(batch):\n        return batch\n"
BEFORE = f"{CLASS}\n{FUNCTION}\ndef made():\n{INNER}    return inner\n"
AFTER = BEFORE.replace("return batch", "return batch.slice(1)")


def written(folder: Path) -> Path:
    """Write the file."""
    file = folder / "program.py"
    file.write_text(BEFORE)
    return file


def loaded(file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load it as it is now. Python finds the file of a class only by the name of its module."""
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "program", module)
    spec.loader.exec_module(module)
    return module


def change(file: Path) -> None:
    """Write another text, with a time that the file system can tell apart."""
    file.write_text(AFTER)
    os.utime(file, (2_000_000_000, 2_000_000_000))
