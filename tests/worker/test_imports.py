"""A module that workers do not find is named, and the person told how to bring it there."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, MissingExtraError, error_for
from laminar_core.protocol.types import Generation
from laminar_core.worker.failures import failure
from laminar_core.worker.imports import NEEDED, import_problem, not_importable

READING = '  File "pyspark/worker.py", line 1, in read_command\n    command = serializer.load()\n'


@pytest.mark.parametrize(
    ("problem", "module"),
    [
        ("ModuleNotFoundError: No module named 'rates'", "module rates"),
        ("ModuleNotFoundError: No module named 'shop.rates'", "module shop.rates"),
        ("ImportError: cannot import name 'euro' from 'rates' (/opt/rates.py)", "module rates"),
        ("ImportError: libfoo.so: cannot open shared object file", "a module"),
        (
            "AttributeError: Can't get attribute 'euro' on <module 'rates' from '/opt/rates.py'>",
            "module rates",
        ),
        ("AttributeError: module 'rates' has no attribute 'Euro'", "module rates"),
    ],
)
def test_a_failed_import_names_the_module_and_what_to_do(problem, module):
    report = f"Job aborted: Traceback (most recent call last):\n{READING}{problem}\n\n\tat org.x"
    assert import_problem(report) == problem
    error = not_importable(problem)
    assert (error.code, "\n" in str(error)) == (ErrorCode.NOT_IMPORTABLE, False)
    assert str(error).startswith(f"the workers cannot import {module} ")
    assert "addPyFile" in str(error)


@pytest.mark.parametrize(
    "report",
    [
        "Python worker exited unexpectedly (crashed)",
        "ValueError: No module named 'rates'",
        # In a user's function:
        "Traceback\nAttributeError: module 'rates' has no attribute 'Euro'",
        "",
    ],
)
def test_another_failure_is_no_failed_import(report):
    assert import_problem(report) is None


def test_an_import_that_fails_inside_a_function_is_told_alike_and_not_tried_again():
    told = failure(Generation(1), 0, ModuleNotFoundError("No module named 'rates'"))
    assert (told.code, told.restart_helps) == (ErrorCode.NOT_IMPORTABLE, False)
    assert told.reason.startswith("the workers cannot import module rates ")
    assert isinstance(error_for(ErrorCode.NOT_IMPORTABLE, told.reason), ConfigurationError)


def test_an_extra_that_workers_lack_keeps_its_own_words():
    told = failure(Generation(1), 0, MissingExtraError(ErrorCode.MISSING_EXTRA, "install it"))
    assert (told.code, told.reason) == (ErrorCode.MISSING_EXTRA, "install it")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("no_laminar_in_the_daemon", "or send it with --ship"),
        ("no_laminar_in_the_task", "or send it with --ship"),
        ("no_arrow", "lack pyarrow"),
    ],
)
def test_a_host_without_laminar_or_arrow_is_told_what_to_install(name: str, advice: str):
    report = (Path(__file__).parents[1] / "spark" / "reports" / f"{name}.txt").read_text()
    problem = import_problem(report)
    assert problem is not None
    assert advice in str(not_importable(problem))


def test_a_package_that_workers_need_is_named_with_all_others():
    told = str(not_importable("ModuleNotFoundError: No module named 'zmq'"))
    assert "lack pyzmq" in told
    assert "--archives" in told
    spark_says = "pyspark.errors: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; x"
    problem = import_problem(spark_says)
    assert problem == "ModuleNotFoundError: No module named 'pyarrow'"


def test_what_workers_need_is_what_laminar_depends_on():
    requires = metadata.requires("laminar-core") or []
    needed = {re.split(r"[<>=;\[ ]", each)[0] for each in requires if "extra ==" not in each}
    assert set(NEEDED.values()) == needed - {"click", "pyspark", "rich"}
