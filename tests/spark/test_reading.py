"""The examples of the document run as they are written there."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.store.checkpoints_to_read import write_job

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "reading.md").read_text()
PLACE = "/mnt/checkpoints"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    return write_job(tmp_path_factory.mktemp("checkpoints")).objects.uri


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_programs_run(root, capsys) -> None:
    scope: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block.replace(PLACE, root), "docs/reading.md", "exec"), scope)
    printed = capsys.readouterr().out
    assert re.search(r"m1\|\s+20\|", printed)
    assert "1 ['merchant', 'window_start', 'count(*)', 'sum(amount)']" in printed
    assert re.search(r"\|\s*bob\|\s*y\|", printed)


def test_the_commands_run_and_print_what_is_shown(root, monkeypatch, capsys) -> None:
    cli = CommandLine(monkeypatch, capsys)
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    answers = [cli(*shlex.split(line.replace(PLACE, root))[1:]) for line in commands]
    assert [(answer.code, answer.err) for answer in answers] == [(0, "")] * len(commands)
    (shown,) = re.findall(r"\n\n```\n(.*?)```", DOCUMENT, re.DOTALL)
    for line in shown.splitlines():
        assert line in answers[0].out
