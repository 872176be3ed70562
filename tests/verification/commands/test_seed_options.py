import click
import pytest
from click.testing import CliRunner

from verification.commands.seed_options import seed_options


@click.command()
@seed_options(20)
def command(*, count: int, first: int, as_json: bool) -> None:
    click.echo(f"{count} {first} {as_json}")


@pytest.mark.parametrize(
    ("words", "output"),
    [([], "20 0 False"), (["3", "--from", "7", "--json"], "3 7 True")],
)
def test_a_command_has_a_number_of_cases_and_a_first_seed(words: list[str], output: str) -> None:
    assert CliRunner().invoke(command, words).output == f"{output}\n"


@pytest.mark.parametrize("words", [["0"], ["1", "--from", "-1"]])
def test_no_case_and_a_seed_below_nothing_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(command, words).exit_code == 2
