"""The environment has a folder for what is made once, and so has each user."""

import sys
from pathlib import Path

import pytest

from laminar_core.spark.caches import cache_folders


@pytest.mark.parametrize(
    ("variables", "second"),
    [
        ({"XDG_CACHE_HOME": "/caches", "HOME": "/home/ana"}, "/caches/laminar"),
        ({"XDG_CACHE_HOME": "", "HOME": "/home/ana"}, "/home/ana/.cache/laminar"),
    ],
    ids=["named", "usual"],
)
def test_the_environment_comes_before_the_user(monkeypatch, variables, second) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folders() == (Path(sys.prefix) / "share" / "laminar", Path(second))
