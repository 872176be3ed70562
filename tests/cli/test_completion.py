"""The shell completes every command and option, and nothing is imported for it."""

import json
import os
import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete

from laminar_core.cli.completion import VARIABLE, WORDS, complete, described, stand_in
from laminar_core.cli.main import laminar

KNOWN = json.loads(WORDS.read_text())


def test_what_is_written_down_is_what_the_commands_are() -> None:
    """If it is not: ``python scripts/completion_words.py`` writes it anew."""
    assert described(laminar.load_all()) == KNOWN


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    shell = BashComplete(stand_in("laminar", KNOWN), {}, "laminar", VARIABLE)
    return [item.value for item in shell.get_completions(before, incomplete)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("chec",), ["checkpoints"]),
        (("checkpoints", "ve"), ["verify"]),
        (("run", "--state-b"), ["--state-backend"]),
        (("stop", "--no-w"), ["--no-wait"]),
        (("status", "--js"), ["--json"]),
        (("drill",), ["drills"]),
        (("jump", "--"), ["--version", "--debug", "--help"]),
    ],
    ids=" ".join,
)
def test_words_are_completed(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_values_are_completed_where_there_are_only_a_few_and_files_are_left_to_the_shell() -> None:
    command = click.Command(
        "it",
        params=[
            click.Option(["--how"], type=click.Choice(["left", "right"])),
            click.Option(["--loud/--quiet"]),
            click.Argument(["target"], type=click.Path()),
        ],
    )
    shell = BashComplete(stand_in("it", described(command)), {}, "it", "_IT")
    assert [i.value for i in shell.get_completions(["--how"], "l")] == ["left"]
    assert [i.value for i in shell.get_completions([], "--q")] == ["--quiet"]
    assert [i.type for i in shell.get_completions([], "jo")] == ["file"]


def test_the_shell_is_answered_without_spark_or_arrow() -> None:
    program = (
        "import sys\n"
        "from laminar_core.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'pyspark', 'pyarrow', 'pydantic'} & sys.modules.keys()\n"
        "    assert not heavy, heavy\n"
    )
    asked = {VARIABLE: "bash_complete", "COMP_WORDS": "laminar run --start-t", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "plain,--start-timeout\n"


def test_without_a_shell_that_asks_nothing_is_read() -> None:
    complete(words=WORDS / "nowhere", environment=())
