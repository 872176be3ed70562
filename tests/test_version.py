"""The version is one: that of the package, of ``laminar --version`` and of every checkpoint."""

import re
from importlib.metadata import version

from laminar_core._version import __version__


def test_the_installed_package_has_the_version_that_checkpoints_say() -> None:
    assert version("laminar-core") == __version__


def test_a_version_has_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
