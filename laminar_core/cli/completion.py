"""Completion of words in a shell, from a description of all commands that is kept beside this file.

The options of a command are known only once its module is imported, and some import Spark. That
takes a second, at each press of a key. So ``scripts/completion_words.py`` writes down what
completion needs, and a test compares it with the commands.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Required, TypedDict, cast

import click

WORDS = Path(__file__).with_name("completion.json")
VARIABLE = "_LAMINAR_COMPLETE"
"""Set by what click writes for bash, zsh and fish."""


class Parameter(TypedDict, total=False):
    """One option, or one argument, whose name begins with no dash; what is empty is left out."""

    names: Required[list[str]]
    off: list[str]
    help: str
    choices: list[str]
    path: bool
    flag: bool
    many: bool


class Described(TypedDict, total=False):
    """A command, or a group, which has commands below it; what is empty is left out."""

    summary: Required[str]
    parameters: Required[list[Parameter]]
    commands: dict[str, "Described"]


def described(command: click.Command) -> Described:
    """Return what completion has to know of a command and of those below it."""
    known: Described = {
        "summary": command.get_short_help_str(1_000),
        "parameters": [_parameter(p) for p in command.params if not getattr(p, "hidden", False)],
    }
    if isinstance(command, click.Group):
        known["commands"] = {word: described(one) for word, one in command.commands.items()}
    return known


def _parameter(param: click.Parameter) -> Parameter:
    kind = param.type
    found: Parameter = {
        "names": list(param.opts),
        "off": list(param.secondary_opts),
        "help": getattr(param, "help", None) or "",
        "choices": [str(one) for one in kind.choices] if isinstance(kind, click.Choice) else [],
        "path": isinstance(kind, click.Path | click.File) or param.name == "target",
        "flag": bool(getattr(param, "is_flag", False)),
        "many": param.multiple or param.nargs != 1,
    }
    return cast("Parameter", {name: value for name, value in found.items() if value})


def stand_in(name: str, known: Described) -> click.Command:
    """Return a command that completes words as the described one, and does nothing."""
    params = [_stand_in(one) for one in known["parameters"]]
    if "commands" not in known:
        return click.Command(name, params=params, help=known["summary"])
    below = {word: stand_in(word, one) for word, one in known["commands"].items()}
    return click.Group(name, commands=below, params=params, help=known["summary"])


def _stand_in(known: Parameter) -> click.Parameter:
    kind: click.Choice[str] | click.Path | None = None
    if "choices" in known:
        kind = click.Choice(known["choices"])
    elif "path" in known:
        kind = click.Path()
    names, many, flag = known["names"], known.get("many", False), known.get("flag", False)
    if not names[0].startswith("-"):
        return click.Argument(names, type=kind, nargs=-1 if many else 1)
    return click.Option(
        ["/".join([names[0], *known.get("off", ())]), *names[1:]],
        type=None if flag else kind,
        help=known.get("help"),
        is_flag=flag or None,
        multiple=many and not flag,
    )


def complete(words: Path = WORDS, environment: Iterable[str] = os.environ) -> None:
    """Answer the shell and end the process, if a shell asks; else do nothing."""
    if VARIABLE in environment:
        known: Described = json.loads(words.read_text(encoding="utf-8"))
        stand_in("laminar", known).main(prog_name="laminar", complete_var=VARIABLE)
