"""Fixtures of the tests that simulate a whole job."""

import pytest

from laminar_core.aggregates import key_places
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.operators import combiner
from laminar_core.state import placed_rows


@pytest.fixture(autouse=True)
def few_rows_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in many units of work, so that faults come in the middle of it."""
    monkeypatch.setattr(FileSource, "gathers", False)


@pytest.fixture(autouse=True)
def few_rows_are_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few rows are bundled as large ones are, so that faults find bundles open."""
    monkeypatch.setattr(combiner, "BUNDLED_ROWS_MIN", 1)
    monkeypatch.setattr(key_places, "KEYS_PER_ROW_MAX", 8)


@pytest.fixture(autouse=True)
def few_rows_have_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial results of a few integers are kept in arrays as those of many are."""
    monkeypatch.setattr(placed_rows, "PLACED_ROWS_MIN", 1)
