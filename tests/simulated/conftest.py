"""Fixtures of the tests that simulate a whole job."""

import pytest

from laminar_core.connectors.files.file_source import FileSource


@pytest.fixture(autouse=True)
def few_rows_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in many units of work, so that faults come in the middle of it."""
    monkeypatch.setattr(FileSource, "gathers", False)
