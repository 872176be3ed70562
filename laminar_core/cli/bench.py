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
from laminar_core.host.terminal import say


@click.command(
    epilog=examples(
        "laminar bench --list",
        "laminar bench joins --json",
        "laminar bench formats --repeat 3 --save benchmarks/results",
    ),
)
@click.argument("names", nargs=-1)
@json_option
@click.option("--list", "only_list", is_flag=True, help="List the benchmarks.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="TIMES",
    help="Run each benchmark so often, and give medians.",
)
@click.option(
    "--save",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a JSON file per benchmark into this directory.",
)
def bench(
    *,
    names: tuple[str, ...],
    as_json: bool,
    only_list: bool,
    repeat: int,
    folder: Path | None,
) -> None:
    """Run the benchmarks NAMES, or all of them.

    Compare ratios within one run: absolute figures depend on what else the machine does. The JSON
    has the machine, the time, the load and the values of all repetitions.
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
            say(f"{name}: {description}")
        return
    records: list[Any] = []
    with Console(stderr=True).status("starting") as status:
        for record in runner.run(names or tuple(known), status.update, repeat):
            records.append(record)
            if folder is not None:  # At once: a later benchmark may fail.
                record.save(folder)
    if as_json:
        click.echo(json.dumps([record.model_dump(mode="json") for record in records], indent=1))
    else:
        _print([figure for record in records for figure in record.figures])
        _print_summary(*runner.summary(records))


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


def _print(figures: list[Any]) -> None:
    table = Table(box=None, pad_edge=False)
    numbers = {"value", "lowest", "highest", "target"}
    for heading in ("benchmark", "value", "lowest", "highest", "unit", "target", "met"):
        table.add_column(heading, justify="right" if heading in numbers else "left")
    for figure in figures:
        sign = "≥" if figure.better == "higher" else "≤"
        several = len(figure.values) > 1
        table.add_row(
            figure.name,
            f"{figure.median:,.4g}",
            f"{min(figure.values):,.4g}" if several else "",
            f"{max(figure.values):,.4g}" if several else "",
            figure.unit,
            "" if figure.target is None else f"{sign} {figure.target:,.4g}",
            {True: "yes", False: "no", None: ""}[figure.met],
        )
    _console().print(table)


def _print_summary(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print what is wanted, and whether it is met."""
    if not rows:
        return
    table = Table(box=None, pad_edge=False, title="What is wanted", title_justify="left")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    _console().print()
    _console().print(table)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)
