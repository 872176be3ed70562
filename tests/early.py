"""Tests that take long and mostly wait begin first, so that no run ends with one of them."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that are marked ``early`` to the front; all others stay in their order."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
