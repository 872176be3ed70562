"""``laminar config``: what the options are, and where each of them was set."""

import json
import re
from typing import Any, cast

import click
from click.core import ParameterSource

from laminar_core.cli.groups import examples
from laminar_core.cli.options import (
    FILE,
    SETTINGS,
    GroupedCommand,
    config_option,
    json_option,
    option_of,
)
from laminar_core.cli.views import print_table
from laminar_core.options import Setting

SECRET = re.compile(
    r"secret|token|passw|passphrase|credential|\bsas\b|sas[._-]?key"
    r"|(?:access|account|api|private|encryption|shared|storage)[._-]?key",
    re.IGNORECASE,
)
"""Names of Spark's settings whose values are not printed."""


def _config(*, as_json: bool, **values: object) -> None:
    context = click.get_current_context()
    rows = [
        (setting, _shown(values[setting.parameter]), _source(context, setting))
        for setting in SETTINGS.values()
    ]
    if as_json:
        found = {s.key: {"value": value, "source": source} for s, value, source in rows}
        click.echo(json.dumps(found, indent=1))
    else:
        print_table(("option", "value", "source"), ((s.key, _text(v), w) for s, v, w in rows))


def _source(context: click.Context, setting: Setting) -> str:
    match context.get_parameter_source(setting.parameter):
        case ParameterSource.COMMANDLINE:
            return "command line"
        case ParameterSource.ENVIRONMENT:
            return f"environment ({setting.variable})"
        case ParameterSource.DEFAULT_MAP:
            return str(context.meta[FILE])
        case _:
            return "default"


def _shown(value: object) -> object:
    """Return a value for people and for JSON."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {n: "(not shown)" if SECRET.search(n) else each for n, each in pairs}
    return value


def _text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in cast("dict[str, Any]", value).items())
    if isinstance(value, tuple):
        return " ".join(map(str, cast("tuple[Any, ...]", value)))
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


config = GroupedCommand(
    "config",
    callback=_config,
    epilog=examples("laminar config", "laminar config --state-backend rocksdb --json"),
    help="""Show every option, its value, and where it was set.

    The command line wins over variables LAMINAR_…, which win over laminar.toml, which wins over the
    default. Give the options of a command to see what they change.
    """,
)
for setting in SETTINGS.values():
    # As ``laminar retention`` has them, names of the policy are names of ``laminar run``, too.
    name = f"--{setting.parameter.replace('_', '-')}"
    option_of(setting, setting.section.capitalize() or "Job", name)(config)
config_option(config)
json_option(config)
