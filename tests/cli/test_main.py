"""Whatever happens, the user gets a line that says so and an exit code that means it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from laminar_core._version import __version__
from laminar_core.cli.main import laminar, open_what_is_closed
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    DataError,
    ErrorCode,
    FencedError,
    JobFailedError,
    LaminarError,
    ProtocolError,
    StorageUnavailable,
)
from laminar_core.objectstore.local import LocalObjectStore
from tests.store.stores import claim, complete, open_job

laminar.load_all()  # Tests look at every command.


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch):
    """Make ``laminar boom`` raise an error."""

    def raise_it(error: BaseException) -> None:
        def boom() -> None:
            raise error

        monkeypatch.setitem(laminar.commands, "boom", click.Command("boom", callback=boom))

    return raise_it


def test_terminated_is_interrupted_once_and_everything_is_let_go(cli, monkeypatch) -> None:
    let_go: list[str] = []

    def boom() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            let_go.append("all of it")

    monkeypatch.setitem(laminar.commands, "boom", click.Command("boom", callback=boom))
    before = signal.getsignal(signal.SIGTERM)
    answer = cli("boom")
    assert (answer.code, answer.err.strip(), let_go) == (130, "interrupted", ["all of it"])
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("words", [(), *commands(laminar)], ids=" ".join)
def test_every_command_explains_itself(cli, words: tuple[str, ...]) -> None:
    answer = cli(*words, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"Usage: {' '.join(('laminar', *words))}")
    assert cli(*words, "-h").out == answer.out


def test_no_list_of_commands_cuts_a_summary(cli) -> None:
    groups = [(), *(path for path in commands(laminar) if isinstance(find(path), click.Group))]
    cut = [
        line for path in groups for line in cli(*path, "--help").out.splitlines() if "..." in line
    ]
    assert [line for line in cut if not line.startswith("Usage:")] == []


def test_every_option_explains_itself() -> None:
    silent = [
        (*path, option.name)
        for path in commands(laminar)
        for option in find(path).params
        if isinstance(option, click.Option) and not option.help and not option.hidden
    ]
    assert silent == []


def find(path: tuple[str, ...]) -> click.Command:
    command: click.Command = laminar
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def test_the_version_is_the_one_in_every_checkpoint(cli) -> None:
    assert cli("--version").out == f"laminar, version {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Usage: laminar"),
        (("jump",), "No such command 'jump'"),
        (("run", "x.py"), "Missing option '--store'"),
        (("run", "--store", "s"), "Missing argument 'TARGET'"),
        (("checkpoints", "show", "0", "--store", "s"), "0 is not in the range"),
        (("checkpoints", "show", "one", "--store", "s"), "'one' is not a valid integer"),
        (
            ("run", "x.py", "--store", "s", "--workers", "0"),
            "must be greater than or equal to 1, not '0'",
        ),
    ],
    ids=str,
)
def test_a_wrong_call_says_what_is_wrong(cli, words: tuple[str, ...], said: str) -> None:
    answer = cli(*words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (LaminarError, 1),
        (JobFailedError, 1),
        (ConfigurationError, 2),
        (DataError, 3),
        (StorageUnavailable, 4),
        (CorruptCheckpointError, 5),
        (FencedError, 6),
        (ProtocolError, 70),
    ],
)
def test_each_kind_of_error_has_its_exit_code(cli, raising, kind, code: int) -> None:
    raising(kind(ErrorCode.STORE_IO, "the disk [/dev/sda] is gone"))
    answer = cli("boom")
    assert (answer.code, answer.out) == (code, "")
    assert answer.err == "error: the disk [/dev/sda] is gone\n"


def test_what_a_terminal_would_obey_is_shown_instead(cli, raising) -> None:
    raising(LaminarError(ErrorCode.STORE_IO, "no job \x1b[2J\u202e"))
    assert cli("boom").err == "error: no job \\x1b[2J\\u202e\n"


def test_an_error_of_another_file_is_not_taken_for_the_outputs(cli, raising) -> None:
    raising(OSError(28, "No space left on device"))
    assert cli("boom").code == 70


def test_what_nobody_expected_is_one_line_and_an_advice(cli, raising) -> None:
    raising(ZeroDivisionError("by\nzero"))
    answer = cli("boom")
    assert answer.code == 70
    assert answer.err.splitlines() == [
        "error: ZeroDivisionError: by",
        "this is not expected: run again with `laminar --debug …`",
    ]


@pytest.mark.parametrize("error", [ValueError("x"), LaminarError(ErrorCode.STORE_IO, "x")])
def test_debug_shows_where_it_happened(cli, raising, error: Exception) -> None:
    raising(error)
    assert "Traceback" not in cli("boom").err
    assert "Traceback" in cli("--debug", "boom").err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_no_error(cli, raising, error: BaseException) -> None:
    raising(error)
    answer = cli("boom")
    assert (answer.code, answer.err.strip()) == (130, "interrupted")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path) -> None:
    """As in ``laminar checkpoints list | head -1``, with a pipe that is closed from the start."""
    store = open_job(LocalObjectStore(tmp_path))
    complete(store, 1, claim(store))
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = ["-m", "laminar_core.cli", "checkpoints", "show", "1", "--store", str(tmp_path)]
    answer = subprocess.run(
        [sys.executable, *words], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert (answer.returncode, answer.stderr) == (1, "")


FULL = Path("/dev/full")
"""Every write to it fails, as on a full disk."""


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("words", "code"),
    [(("checkpoints", "show", "1"), 1), (("checkpoints", "show", "7"), 2), (("jump",), 2)],
    ids=str,
)
def test_a_full_disk_under_all_output_leaves_the_exit_code_as_it_is(tmp_path, words, code) -> None:
    """Goal: what a program decides by is the exit code, and 120 would tell it nothing."""
    store = open_job(LocalObjectStore(tmp_path))
    complete(store, 1, claim(store))
    command = [sys.executable, "-m", "laminar_core.cli", *words]
    store_words = () if words == ("jump",) else ("--store", str(tmp_path))
    with FULL.open("w") as full:
        answer = subprocess.run([*command, *store_words], stdout=full, stderr=full, check=False)
    assert answer.returncode == code


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [("--version",), ("--help",), ("checkpoints", "--help")], ids=str)
def test_a_full_disk_under_the_output_is_one_line(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "laminar_core.cli", *words]
    with FULL.open("w") as full:
        answer = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "error: standard output cannot be written: No space left on device\n"
    assert (answer.returncode, answer.stderr) == (1, said)


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("show 1", 0), ("show 7", 2), ("pin 1", 0)])
def test_a_stream_that_is_closed_leaves_the_exit_code_as_it_is(
    tmp_path, closed: str, words: str, code: int
) -> None:
    store = open_job(LocalObjectStore(tmp_path))
    complete(store, 1, claim(store))
    command = f'"$0" -m laminar_core.cli checkpoints {words} --store "$1" {closed}'
    shell = ["sh", "-c", command, sys.executable, str(tmp_path)]
    answer = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert answer.returncode == code
    assert "Traceback" not in answer.stdout + answer.stderr


def test_a_stream_that_is_closed_leads_nowhere(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    open_what_is_closed()
    assert sys.stdout is not None
    sys.stdout.write("lost")
    sys.stdout.close()


def test_a_name_that_is_no_text_is_said_to_a_closed_stream(tmp_path) -> None:
    name = os.fsencode(tmp_path / "none") + b"\xff"
    command = '"$0" -m laminar_core.cli checkpoints list --store "$1" 2>&-'
    answer = subprocess.run(["sh", "-c", command, sys.executable, name], check=False)
    assert answer.returncode == 2


def test_a_process_that_is_started_has_the_streams_that_were_closed() -> None:
    program = (
        "import subprocess, sys; from laminar_core.cli.main import open_what_is_closed;"
        "open_what_is_closed();"
        "look = 'import os; [os.fstat(number) for number in range(3)]';"
        "sys.exit(subprocess.run([sys.executable, '-c', look]).returncode)"
    )
    command = '"$0" -c "$1" 0<&- 1>&- 2>&-'
    answer = subprocess.run(["sh", "-c", command, sys.executable, program], check=False)
    assert answer.returncode == 0
