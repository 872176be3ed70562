"""The wheel, and a Python that has it in place of this checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("laminar_core", "jobs", "resources", "sensors", "orchestration")
SPARE = ("README.md", "LICENSE", "pyproject.toml")


def start(
    *words: str | Path, cwd: Path, **variables: str | Path
) -> subprocess.CompletedProcess[str]:
    # Programs that other tests load in this process put the checkout on PYTHONPATH.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.update({name: str(value) for name, value in variables.items()})
    return subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def call(*words: str | Path, cwd: Path, **variables: str | Path) -> str:
    done = start(*words, cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def quiet_dagster(home: Path) -> dict[str, str | Path]:
    """Variables with which Dagster's commands ask no server, and keep what they keep in a place."""
    return {"DAGSTER_DISABLE_TELEMETRY": "1", "DAGSTER_HOME": "", "HOME": home}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for name in SPARE:
        shutil.copy(ROOT / name, copy)
    build = ("build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", "dist")
    call(sys.executable, "-m", "uv", *build, "--python", sys.executable, cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="session")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel, and without this checkout."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install = ("pip", "install", "--quiet", "--offline", "--no-deps", "--python", python)
    call(sys.executable, "-m", "uv", *install, wheel, cwd=place)
    (packages,) = place.glob("lib/python*/site-packages")
    # A path that such a file names is searched, but the files in it that name others are not read:
    # the editable installation of the checkout stays out.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python
