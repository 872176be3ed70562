"""What surrounds the demo: one at a time, quiet, and one line for whatever goes wrong."""

import os
import threading
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from orchestration.demo import __main__ as demo


def test_events_are_followed_as_they_are_written_and_to_the_last(tmp_path: Path) -> None:
    path, over, heard = tmp_path / "events", threading.Event(), []
    first = threading.Event()

    def listen() -> None:
        for event in demo.follow(path, over):
            heard.append(event["n"])
            first.set()

    listener = threading.Thread(target=listen)
    listener.start()
    with path.open("a") as file:
        file.write('{"n": 1}\n{"n"')
        file.flush()
        assert first.wait(30)
        file.write(': 2}\n{"n": 3}\n')
    over.set()
    listener.join()
    assert heard == [1, 2, 3]


def test_a_job_that_writes_nothing_is_followed_too(tmp_path: Path) -> None:
    over = threading.Event()
    over.set()
    assert list(demo.follow(tmp_path / "never", over)) == []


def test_two_demos_do_not_run_at_once(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with demo.alone(tmp_path / ".lock") as is_alone:
        assert is_alone
        assert demo.main(lambda _: 0, tmp_path) == 1
    assert "another one is running" in capfd.readouterr().err
    assert demo.main(lambda _: 0, tmp_path) == 0


def test_noise_goes_to_the_log_and_words_to_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    def act(console) -> int:
        os.write(1, b"noise on stdout\n")
        os.write(2, b"noise on stderr\n")
        console.print("words")
        return 0

    assert demo.main(act, tmp_path) == 0
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

    assert demo.main(act, tmp_path) == 1
    said, where = capfd.readouterr().out.splitlines()
    assert "the disk is full" in said
    assert str(tmp_path / "demo.log") in where
