"""The package that goes with a job has what workers need, and only that."""

import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from laminar_core.spark.shipping import own_modules, pack


def module(name: str, file: Path | None) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = None if file is None else str(file)
    return made


def test_workers_import_laminar_from_the_package_alone(tmp_path: Path):
    packed = pack(tmp_path, {})
    program = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        f"sys.path.insert(0, {str(packed)!r})\n"
        "import laminar_core.spark.stage as stage\n"
        f"assert stage.__file__.startswith({str(packed)!r}), stage.__file__\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100, cwd=tmp_path)


def test_the_package_has_neither_dagster_nor_anything_but_python(tmp_path: Path):
    with zipfile.ZipFile(pack(tmp_path, {})) as archive:
        names = archive.namelist()
    assert "laminar_core/spark/stage.py" in names
    assert "laminar_core/jobs/__init__.py" in names or "laminar_core/jobs/payments.py" in names
    assert [name for name in names if not name.endswith(".py")] == []
    assert [name for name in names if name.startswith("laminar_core/orchestration/")] == []


def test_equal_contents_have_equal_names_and_others_do_not(tmp_path: Path):
    extra = tmp_path / "rates.py"
    extra.write_text("RATE = 1\n")
    first, same = (pack(tmp_path, {"rates.py": extra}) for _ in range(2))
    extra.write_text("RATE = 2\n")
    assert first == same
    assert pack(tmp_path, {"rates.py": extra}).name != first.name


def test_modules_beside_the_program_go_with_it(tmp_path: Path):
    program, elsewhere = tmp_path / "program", tmp_path / "elsewhere"
    for folder in (program / "tools" / "deep", elsewhere):
        folder.mkdir(parents=True)
    files = [
        program / "rates.py",
        program / "tools" / "__init__.py",
        program / "tools" / "deep" / "unused_yet.py",
        program / "job.py",
        program / "native.so",
        elsewhere / "installed.py",
    ]
    for file in files:
        file.write_text("")
    loaded = {
        "rates": module("rates", files[0]),
        "tools": module("tools", files[1]),
        "tools.deep": module("tools.deep", files[2]),
        "program_job": module("program_job", files[3]),
        "native": module("native", files[4]),
        "installed": module("installed", files[5]),
        "builtin": module("builtin", None),
        "forbidden": None,
    }
    assert own_modules(loaded, [program]) == {
        "rates.py": files[0],
        "tools/__init__.py": files[1],
        "tools/deep/unused_yet.py": files[2],
    }
    assert own_modules(loaded, []) == {}


@pytest.mark.spark
def test_spark_gets_the_package_and_this_process_keeps_its_path(spark, tmp_path, monkeypatch):
    from laminar_core.spark.shipping import ship  # noqa: PLC0415

    (tmp_path / "shipped_beside.py").write_text("RATE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("shipped_beside")
    before = list(sys.path)
    packed = ship(spark, [tmp_path])
    assert sys.path == before

    def imports(_rows):
        import shipped_beside  # noqa: PLC0415

        yield shipped_beside.RATE, shipped_beside.__file__

    ((rate, file),) = spark.sparkContext.parallelize([0], 1).mapPartitions(imports).collect()
    assert rate == 7
    assert packed.name in file
