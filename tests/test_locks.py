"""The lock files hold what ``pyproject.toml`` asks for, and nothing but digests to find it by."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ALL = PROJECT["dependencies"] + [r for name in EXTRAS if name != "jvm" for r in EXTRAS[name]]
OLDEST = PROJECT["dependencies"] + [r for name in EXTRAS if name != "dev" for r in EXTRAS[name]]
BOUNDS = dict(re.findall(r"([A-Za-z0-9._-]+)>=([\d.]+)", "\n".join(OLDEST)))


def names(requirements: list[str]) -> set[str]:
    found = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in requirements}
    return found - {PROJECT["name"]}


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("requirements.lock", ALL),
        ("requirements-jvm.lock", EXTRAS["jvm"]),
        ("requirements-oldest.lock", OLDEST),
    ],
)
def test_every_dependency_is_locked_with_its_digest(lock: str, requirements: list[str]) -> None:
    text = (ROOT / lock).read_text()
    pins = re.findall(r"^([a-z0-9._-]+)==\S+ \\\n    --hash=sha256:", text, re.MULTILINE)
    assert names(requirements) <= set(pins)
    assert len(pins) == len(re.findall(r"^[a-z]", text, re.MULTILINE))
    assert "//" not in text


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_the_oldest_lock_has_the_lower_bound_of_every_dependency(name: str) -> None:
    text = (ROOT / "requirements-oldest.lock").read_text()
    (locked,) = re.findall(rf"^{name.lower()}==(\S+) ", text, re.MULTILINE)
    wanted = BOUNDS[name].split(".")
    assert locked.split(".")[: len(wanted)] == wanted


def test_every_dependency_has_a_lower_bound() -> None:
    assert names(OLDEST) == {name.lower() for name in BOUNDS}
