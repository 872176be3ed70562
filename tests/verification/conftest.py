"""Calls ``python -m verification`` in this process."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from verification.__main__ import verification


@pytest.fixture
def verify() -> Callable[..., Result]:
    runner = CliRunner()
    return lambda *words: runner.invoke(verification, [str(word) for word in words])
