"""The demo runs once at a time, quietly, and prints one line for every failure."""

import os
from pathlib import Path

import dagster as dg
import pytest

from examples import screen
from laminar_core.errors import ErrorCode, StorageUnavailable


def test_two_demos_do_not_run_at_once(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with screen.alone(tmp_path / ".lock") as is_alone:
        assert is_alone
        assert screen.perform(lambda _: 0, tmp_path) == 1
    assert "another one is running" in capfd.readouterr().err
    assert screen.perform(lambda _: 0, tmp_path) == 0


def test_noise_goes_to_the_log_and_words_to_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    def act(console) -> int:
        os.write(1, b"noise on stdout\n")
        os.write(2, b"noise on stderr\n")
        console.print("words")
        return 0

    assert screen.perform(act, tmp_path) == 0
    assert capfd.readouterr().out == "words\n"
    assert (tmp_path / "demo.log").read_text() == "noise on stdout\nnoise on stderr\n"


@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailable(ErrorCode.STORE_FULL, "the disk is full"),
        dg.Failure("the disk is full"),
        OSError("the disk is full"),
    ],
)
def test_a_failure_is_one_line_and_where_to_look(
    tmp_path: Path, capfd: pytest.CaptureFixture, error: Exception
) -> None:
    def act(_: object) -> int:
        raise error

    assert screen.perform(act, tmp_path) == 1
    said, where = capfd.readouterr().out.splitlines()
    assert "the disk is full" in said
    assert str(tmp_path / "demo.log") in where
