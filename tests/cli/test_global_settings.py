"""Options before a command's name reach the command."""

import click
import pytest

from laminar_core.cli.global_settings import GlobalSettings
from laminar_core.cli.main import laminar


@pytest.mark.parametrize(("words", "debug"), [((), False), (("--debug",), True)], ids=str)
def test_every_command_knows_whether_to_show_tracebacks(cli, monkeypatch, words, debug) -> None:
    found: list[GlobalSettings] = []
    command = click.Command("boom", callback=click.pass_obj(found.append))
    monkeypatch.setitem(laminar.commands, "boom", command)
    assert cli(*words, "boom").code == 0
    assert found == [GlobalSettings(debug)]
