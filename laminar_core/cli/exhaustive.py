"""``laminar simulate --exhaustive``: every order of events in small worlds, instead of seeds."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from laminar_core.host.clock import SystemClock
from laminar_core.testing.explorer import WORLDS, Report, World, explore
from laminar_core.testing.explorer.worlds import QUICK

VIOLATED_EXIT_CODE = 1
ALL = "all"

_OF_SEEDS = {
    "count": "--seeds",
    "first": "--from",
    "seed": "--seed",
    "corruptions": "--corruptions",
}

_OPTIONS = (
    click.option(
        "--exhaustive",
        is_flag=True,
        help="Instead of seeds: every order of events, in worlds small enough for that.",
    ),
    click.option(
        "--world",
        "worlds",
        type=click.Choice([*WORLDS, ALL]),
        multiple=True,
        metavar="NAME",
        help=f"Explore this world; several are possible, and {ALL!r}  [default: the quick ones].",
    ),
)


def or_exhaustive(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; with ``--exhaustive`` worlds are explored and the command is not called."""

    @wraps(command)
    def choose(*, exhaustive: bool, worlds: tuple[str, ...], **values: Any) -> None:  # noqa: ANN401
        if exhaustive:
            _refuse_options_of_seeds(click.get_current_context())
            explore_worlds(_chosen(worlds), as_json=values["as_json"])
        elif worlds:
            raise click.UsageError("--world is about --exhaustive: give both, or none")
        else:
            command(**values)

    wrapped = choose
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def _refuse_options_of_seeds(context: click.Context) -> None:
    for name, option in _OF_SEEDS.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--exhaustive leaves nothing to chance: leave {option} out")


def _chosen(names: tuple[str, ...]) -> Sequence[World]:
    if ALL in names:
        return tuple(WORLDS.values())
    return tuple(WORLDS[name] for name in names) or QUICK


def explore_worlds(worlds: Sequence[World], *, as_json: bool) -> None:
    """Explore one after the other; the exit code is 1 if one of them is violated."""
    show = _show_json if as_json else _show_text
    reports = []
    for report in _explored(worlds):
        show(report)
        reports.append(report)
    failed = [report.world for report in reports if report.violation is not None]
    states, transitions = (sum(getattr(r, of) for r in reports) for of in ("states", "transitions"))
    if as_json:
        said = {"worlds": len(reports), "failed": failed, "states": states}
        click.echo(json.dumps({"event": "summary", **said, "transitions": transitions}))
    else:
        click.echo(
            f"{len(reports)} worlds, {len(failed)} violated; {states:,} states, "
            f"{transitions:,} transitions"
        )
    if failed:
        raise SystemExit(VIOLATED_EXIT_CODE)


def _explored(worlds: Sequence[World]) -> Iterator[Report]:
    with Console(stderr=True, highlight=False).status("") as status:
        for world in worlds:
            status.update(f"{world.name}: {world.what}")
            yield explore(world, SystemClock())


def _show_json(report: Report) -> None:
    click.echo(json.dumps({"event": "world", **report.as_dict()}))


def _show_text(report: Report) -> None:
    click.echo(
        f"{report.world}: {report.states:,} states, {report.transitions:,} transitions, "
        f"{report.depth} deep, {report.checkpoints:,} checkpoints, {report.seconds:.1f} s: "
        f"{'VIOLATED' if report.violation else 'well'}"
    )
    if report.violation is not None:
        click.echo(str(report.violation))
