"""The report of a program's dry run is read, and a missing one is an error."""

import os
import sys
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration.launching.dry_run import DryRun, dry_run
from laminar_core.orchestration.spec import StreamSpec


def answer(said: str, exit_code: int = 0, stderr: str = "") -> DryRun:
    script = (
        f"import sys; print({said!r}); print({stderr!r}, file=sys.stderr); sys.exit({exit_code})"
    )
    spec = StreamSpec(name="orders", program=Path("o.py"), laminar=(sys.executable, "-c", script))
    return dry_run(spec, "/store", os.environ, [])


REFUSED = (
    '{"verdict": "refuse", "job": "orders", "problems": [{"message": "no"}, {"message": "x"}]}'
)


def test_the_report_is_shown_also_where_the_exit_code_is_a_refusal() -> None:
    said = answer(REFUSED, exit_code=3)
    assert str(said) == "job orders would be refused: no; x"
    with pytest.raises(dg.Failure, match="would be refused: no; x") as caught:
        said.require_start()
    assert caught.value.metadata["verdict"].value == "refuse"


def test_what_can_be_started_is_not_refused() -> None:
    said = answer('{"verdict": "fresh", "job": "orders", "problems": [], "checkpoint": null}')
    said.require_start()
    assert said.metadata()["what"] == "job orders would start from nothing"


def test_the_error_of_a_program_without_a_report_is_shown_verbatim() -> None:
    with pytest.raises(dg.Failure, match=r"exit code 2: Error: no such file: o\.py"):
        answer("", exit_code=2, stderr="Traceback\nError: no such file: o.py\n")


def test_the_command_is_that_of_a_person() -> None:
    spec = StreamSpec(name="orders", program=Path("o.py"), arguments={"input": "x"})
    assert spec.dry_run_command("/store", ["--workers", "4"])[1:] == [
        *("-m", "laminar_core.cli", "recover", "o.py", "--set", "input=x"),
        *("--store", "/store", "--job", "orders", "--workers", "4", "--dry-run", "--json"),
    ]
