"""The list that help shows is true, and every command has an example that it understands."""

import shlex
from collections.abc import Iterator

import click
import pytest

from laminar_core.cli.command_list import ALIASES, SECTIONS
from laminar_core.cli.main import laminar

ENTRIES = [entry for section in SECTIONS.values() for entry in section]
laminar.load_all()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_summary_is_the_first_sentence_of_the_commands_help(entry) -> None:
    assert entry.summary == entry.load().get_short_help_str(1_000)


def test_older_names_are_those_of_commands_that_are_elsewhere_now() -> None:
    checkpoints, drills = laminar.commands["checkpoints"], laminar.commands["drills"]
    assert isinstance(checkpoints, click.Group)
    assert isinstance(drills, click.Group)
    now = {"checkpoint": checkpoints.commands["take"], "drill": drills.commands["run"]}
    assert {alias.name: alias.load() for alias in ALIASES} == now


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, word))
        else:
            yield " ".join((*path, word)), command


def calls(command: click.Command) -> list[str]:
    """The examples at the end of a command's help."""
    return [line.strip() for line in (command.epilog or "").splitlines() if "laminar " in line]


LEAVES = dict(leaves(laminar))


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_an_example_that_it_understands(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = LEAVES[path]
    monkeypatch.setenv("LAMINAR_STORE", "store")
    assert calls(command)
    for call in calls(command):
        assert call.startswith(f"laminar {path}"), call
        rest = shlex.split(call.removeprefix(f"laminar {path}"))
        assert command.make_context(path, rest, **laminar.context_settings).args == []
