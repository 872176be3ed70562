"""A pipeline is found where the user said, built with what was set, or refused in one line."""

import os
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from laminar_core.cli.target import load_pipeline
from laminar_core.errors import ConfigurationError, DataError, ErrorCode

PROGRAM = """
from laminar_core.pipeline import Pipeline

def pipeline(count: int = 1, rate: float | None = None, label: str = "a", flag: bool = False,
             untyped=None):
    p = Pipeline("built")
    p.settings = (count, rate, label, flag, untyped)
    return p

def other():
    return Pipeline("other")

def needs(input: str, output: str):
    return Pipeline(f"{input}-{output}")

def flexible(*args, **more):
    return Pipeline("flexible")

def takes_an_object(thing: object.__class__ = None, sink: Pipeline = None):
    return Pipeline("object")

def returns_text():
    return "no pipeline"

def divides():
    return 1 / 0

NUMBER = 3
"""


@pytest.fixture(autouse=True)
def place(own_imports: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory to work in; what loading changes in this process is put back."""
    del own_imports
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    return tmp_path


def built(target: str = "program.py", *settings: str):
    return load_pipeline(target, settings)


def refusal(target: str, *settings: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(target, settings)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("program.py", "built"),
        ("./program.py:pipeline", "built"),
        ("program.py:other", "other"),
        ("program", "built"),
        ("program:other", "other"),
        ("program.py:flexible", "flexible"),
        ("package.inner", "built"),
    ],
)
def test_a_file_or_a_module_is_found(place: Path, target: str, name: str) -> None:
    (place / "package").mkdir()
    (place / "package" / "inner.py").write_text(PROGRAM)
    assert built(target).name == name


def test_settings_become_what_the_function_declares() -> None:
    pipeline = built(
        "program.py", "count=7", "rate=1e3", "label=x=y", "flag=true", "untyped=as it is"
    )
    assert pipeline.settings == (7, 1000.0, "x=y", True, "as it is")
    assert built().settings == (1, None, "a", False, None)


def test_declarations_may_be_written_as_text(place: Path) -> None:
    (place / "late.py").write_text(
        "from __future__ import annotations\n"
        "from datetime import date\nfrom laminar_core.pipeline import Pipeline\n"
        "def pipeline(day: date | None = None):\n    return Pipeline(f'{day:%Y%j}')\n"
    )
    assert built("late.py", "day=2026-02-01").name == "2026032"


@pytest.mark.parametrize(
    ("target", "settings", "said"),
    [
        ("nowhere.py", (), "no such file: nowhere.py"),
        (".", (), "cannot be loaded"),
        ("", (), "give a file, or a module on the path"),
        (":pipeline", (), "give a file, or a module on the path"),
        ("rows.parquet", (), "rows.parquet is no program: give a file .py"),
        ("no_such_module", (), "no module no_such_module: give a file, or a module"),
        ("no_such.module", (), "no module no_such: give a file, or a module"),
        ("program.py:missing", (), "program.py has no function missing()"),
        ("program.py:NUMBER", (), "program.py has no function NUMBER()"),
        ("program.py:returns_text", (), "returned a str and not a Pipeline"),
        ("program.py:divides", (), "divides() of program.py failed: ZeroDivisionError: division"),
        ("program.py", ("count",), "--set needs name=value, not 'count'"),
        ("program.py", ("colour=red",), "has no setting 'colour', it has: count, rate, label"),
        ("program.py:other", ("colour=red",), "has no setting 'colour', it has none"),
        ("program.py", ("count=many",), "--set count=many: Input should be a valid integer"),
        ("program.py", ("rate=fast",), "--set rate=fast: Input should be a valid number"),
        ("program.py:needs", (), "program.py:needs needs --set input=… --set output=…"),
        ("program.py:needs", ("input=a",), "program.py:needs needs --set output=…"),
        ("program.py:takes_an_object", ("sink=x",), "sink cannot be set on the command line"),
    ],
)
def test_what_cannot_be_built_is_refused(target: str, settings, said: str) -> None:
    assert said in str(refusal(target, *settings))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def pipeline(:\n", "broken.py cannot be loaded: SyntaxError"),
        ("import no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two (`laminar --debug …` shows where)"),
    ],
    ids=["syntax", "import", "raises"],
)
@pytest.mark.parametrize("target", ["broken.py", "broken"])
def test_a_program_that_cannot_be_loaded_is_the_users(place, target: str, text, said) -> None:
    (place / "broken.py").write_text(text)
    error = refusal(target)
    assert said.replace("broken.py", target) in str(error)
    assert error.code is ErrorCode.INVALID_PIPELINE


def test_an_error_of_ours_inside_the_program_is_reported_as_it_is(place: Path) -> None:
    (place / "ours.py").write_text(
        "from laminar_core.errors import DataError, ErrorCode\n"
        "def pipeline():\n    raise DataError(ErrorCode.NULL_KEY, 'row 3 has no key')\n"
    )
    with pytest.raises(DataError, match=r"^row 3 has no key$"):
        built("ours.py")


def test_a_program_finds_what_lies_beside_it_and_where_the_user_is(place: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "beside.py").write_text("NAME = 'beside'\n")
    (place / "here.py").write_text("NAME = 'here'\n")
    (place / "sub" / "p.py").write_text(
        "import beside, here\nfrom laminar_core.pipeline import Pipeline\n"
        "def pipeline():\n    return Pipeline(f'{beside.NAME}-{here.NAME}')\n"
    )
    assert built("sub/p.py").name == "beside-here"
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(place / "sub"), str(place), "/somewhere"], "so do Spark's workers"


def test_the_search_path_does_not_grow_with_every_program() -> None:
    built()
    paths = list(sys.path), os.environ["PYTHONPATH"]
    built()
    assert (list(sys.path), os.environ["PYTHONPATH"]) == paths


def test_a_program_does_not_take_the_place_of_a_module_of_the_same_name(place: Path) -> None:
    (place / "json.py").write_text(PROGRAM)
    json = sys.modules["json"]
    assert built("json.py").name == "built"
    assert sys.modules["json"] is json


def test_what_a_program_defines_travels_to_workers_that_cannot_import_it(place: Path) -> None:
    (place / "functions.py").write_text(
        "from dataclasses import dataclass\nfrom laminar_core.pipeline import Pipeline\n"
        "@dataclass(frozen=True)\nclass Limit:\n    low: int\n"
        "LIMIT = Limit(3)\ndef keep(value):\n    return value >= LIMIT.low\n"
        "def pipeline():\n    p = Pipeline('p')\n    p.keep = keep\n    return p\n"
    )
    sent = cloudpickle.dumps(built("functions.py").keep)
    del sys.modules["program_functions"]
    keep = cloudpickle.loads(sent)
    assert [keep(2), keep(3)] == [False, True]


def test_a_setting_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOW_MANY", "7")
    assert built("program.py", "count=env:HOW_MANY").settings[0] == 7


def test_a_missing_variable_is_named_and_the_value_of_a_wrong_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = str(refusal("program.py", "label=env:NO_SUCH_SECRET"))
    assert said.endswith("the environment variable NO_SUCH_SECRET is not set")
    monkeypatch.setenv("A_SECRET", "hunter2")
    said = str(refusal("program.py", "count=env:A_SECRET"))
    assert "count=env:A_SECRET" in said
    assert "hunter2" not in said
