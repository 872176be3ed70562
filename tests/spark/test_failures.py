"""The reason of a lost worker is what Python said, whatever Spark wraps around it."""

from pathlib import Path

import pytest

from laminar_core.spark.failures import REASON_LENGTH_MAX, reason_in, reason_of

REPORTS = Path(__file__).parent / "reports"


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            "Job aborted\n  Python worker exited unexpectedly (crashed)\n at x",
            "Python worker exited unexpectedly (crashed)",
        ),
        (
            "x\nCaused by: java.io.IOException: disk full\n\tat y",
            "Caused by: java.io.IOException: disk full",
        ),
        ("An error\nValueError: seven is odd\n", "ValueError: seven is odd"),
        ("only one line", "only one line"),
        ("", ""),
    ],
)
def test_the_line_that_says_most_is_the_reason(report: str, line: str):
    assert reason_in(report) == line


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("error_of_the_user", "ValueError: seven is odd"),
        ("no_arrow", "ModuleNotFoundError: No module named 'pyarrow'"),
        ("no_laminar_in_the_daemon", "ModuleNotFoundError: No module named 'laminar_core'"),
        ("no_laminar_in_the_task", "ModuleNotFoundError: No module named 'laminar_core'"),
        ("no_module_in_the_task", "ModuleNotFoundError: No module named 'zmq_that_is_not_there'"),
        ("process_died", "Python worker exited unexpectedly (crashed)"),
    ],
)
def test_reports_of_a_real_spark_have_the_reason_of_python(name: str, line: str):
    """They are Spark 4.3's, with fewer frames; each wraps a failed barrier stage."""
    report = (REPORTS / f"{name}.txt").read_text()
    assert "Could not recover from a failed barrier" in report
    assert line in reason_in(report)


def test_an_error_without_a_text_is_named():
    assert reason_of(RuntimeError("")) == "RuntimeError"
    assert len(reason_of(RuntimeError("x" * 1000))) == REASON_LENGTH_MAX
