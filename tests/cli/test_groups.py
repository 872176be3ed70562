"""Commands are imported when they are used, and older calls mean what they meant."""

import subprocess
import sys
from importlib.util import find_spec

import click
import pytest
from click.testing import CliRunner

from laminar_core.cli.groups import (
    CommandEntry,
    GroupWithDefault,
    LazyGroup,
    PartlyLazyGroup,
    examples,
)

ENTRY = CommandEntry("status", "status:status", "Show the state of a job.")
OLD = CommandEntry("checkpoint", "control:checkpoint")


@pytest.fixture
def group() -> LazyGroup:
    return LazyGroup("it", sections={"Watch": (ENTRY,)}, aliases=(OLD,))


def test_a_command_is_imported_when_it_is_asked_for(group: LazyGroup) -> None:
    context = click.Context(group)
    assert group.list_commands(context) == ["status"]
    assert group.commands == {}
    command = group.get_command(context, "status")
    assert command is not None
    assert command.name == "status"
    assert group.get_command(context, "status") is command
    assert group.get_command(context, "jump") is None


def test_an_older_name_works_and_is_not_shown(group: LazyGroup) -> None:
    context = click.Context(group)
    assert group.get_command(context, "checkpoint") is OLD.load()
    assert group.list_commands(context) == ["status"]
    assert "checkpoint" not in CliRunner().invoke(group, ["--help"]).output
    assert group.load_all().commands.keys() == {"status"}


def test_the_help_has_a_list_for_each_section(group: LazyGroup) -> None:
    shown = CliRunner().invoke(group, ["--help"]).output
    assert "Watch:\n  status  Show the state of a job." in shown


def test_names_are_completed_without_an_import(group: LazyGroup) -> None:
    context = click.Context(group)
    assert [item.value for item in group.shell_complete(context, "st")] == ["status"]
    assert [item.value for item in group.shell_complete(context, "c")] == []
    assert "--help" in [item.value for item in group.shell_complete(context, "--")]
    assert group.commands == {}


@pytest.mark.parametrize("words", ["--help", "--version"])
def test_the_help_of_laminar_loads_neither_spark_nor_arrow(words: str) -> None:
    assert find_spec("pyarrow")
    program = (
        "import sys\n"
        f"sys.argv = ['laminar', {words!r}]\n"
        "from laminar_core.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'pyspark', 'pyarrow', 'pydantic'} & sys.modules.keys()\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "laminar" in done.stdout


def test_a_group_takes_what_names_no_command_for_its_default() -> None:
    said: list[str] = []

    @click.group(cls=GroupWithDefault, default="take")
    def savepoints() -> None:
        """Savepoints."""

    @savepoints.command()
    @click.argument("target")
    def take(target: str) -> None:
        said.append(f"take {target}")

    @savepoints.command("list")
    def list_them() -> None:
        said.append("list")

    for words in (["there"], ["take", "there"], ["list"]):
        assert CliRunner().invoke(savepoints, words).exit_code == 0
    assert said == ["take there", "take there", "list"]
    assert "Commands:" in CliRunner().invoke(savepoints, ["--help"]).output


def test_examples_keep_their_lines() -> None:
    command = click.Command("it", epilog=examples("it --a", "it --b"))
    assert "Examples:\n    it --a\n    it --b" in CliRunner().invoke(command, ["--help"]).output


def test_a_partly_lazy_group_imports_a_command_when_it_is_used() -> None:
    @click.group(cls=PartlyLazyGroup, later=(CommandEntry("diff", "diff:diff"),))
    def some() -> None:
        """Some."""

    @some.command()
    def show() -> None:
        """Show."""

    context = click.Context(some)
    assert some.list_commands(context) == ["diff", "show"]
    assert some.commands.keys() == {"show"}
    assert some.get_command(context, "none") is None
    assert some.get_command(context, "diff") is some.commands["diff"]
    assert some.list_commands(context) == ["diff", "show"]


def test_lists_and_plans_load_neither_arrow_nor_operators() -> None:
    program = (
        "import sys\n"
        "import laminar_core.cli.checkpoints, laminar_core.cli.retention\n"
        "heavy = {'pyarrow', 'laminar_core.operators', 'laminar_core.connectors', "
        "'laminar_core.link.transport'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
