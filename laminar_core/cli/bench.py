"""``laminar bench``: runs the benchmarks of a checkout."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from laminar_core.cli.groups import examples
from laminar_core.cli.options import json_option
from laminar_core.errors import ConfigurationError, ErrorCode


@click.command(
    epilog=examples(
        "laminar bench --list",
        "laminar bench joins --json",
    ),
)
@click.argument("names", nargs=-1)
@json_option
@click.option("--list", "only_list", is_flag=True, help="List the benchmarks.")
def bench(*, names: tuple[str, ...], as_json: bool, only_list: bool) -> None:
    """Run the benchmarks NAMES, or all of them.

    Compare ratios within one run: absolute figures depend on what else the machine does.
    """
    runner = _benchmarks()
    known: dict[str, str] = runner.descriptions()
    if unknown := sorted(set(names) - known.keys()):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}",
        )
    if only_list:
        for name, description in known.items():
            click.echo(f"{name}: {description}")
        return
    with Console(stderr=True).status("starting") as status:
        results = runner.run(names or tuple(known), status.update)
    if as_json:
        click.echo(json.dumps([result.as_dict() for result in results], indent=1))
    else:
        _print(results)


def _benchmarks() -> Any:  # noqa: ANN401 - a package of the checkout, above this one
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module("benchmarks.runner")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("benchmarks"):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"the benchmarks need {error.name}: install it, or choose an environment that has "
                "it",
            ) from error
        raise ConfigurationError(
            ErrorCode.NO_SUCH_PATH,
            "there is no benchmarks/ folder here: run this from a checkout of Laminar",
        ) from error


def _print(results: list[Any]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("benchmark", "value", "unit", "target", "met"):
        table.add_column(heading, justify="right" if heading in {"value", "target"} else "left")
    for result in results:
        one = result.as_dict()
        sign = "≥" if one["better"] == "higher" else "≤"
        table.add_row(
            one["name"],
            f"{one['value']:,.4g}",
            one["unit"],
            "" if one["target"] is None else f"{sign} {one['target']:,.4g}",
            {True: "yes", False: "no", None: ""}[one["met"]],
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
