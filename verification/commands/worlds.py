"""``python -m verification worlds``: every order of events in small worlds."""

import json
from collections.abc import Iterator, Sequence

import click
from rich.console import Console

from laminar_core.cli.options import json_option
from laminar_core.host.clock import SystemClock
from verification.explorer import WORLDS, Report, World, explore
from verification.explorer.worlds import QUICK

VIOLATED_EXIT_CODE = 1
ALL = "all"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*WORLDS, ALL]), metavar="[NAME]...")
@click.option("--list", "listed", is_flag=True, help="Show what worlds there are.")
@json_option
def worlds(*, names: tuple[str, ...], listed: bool, as_json: bool) -> None:
    """Explore every order of events in small worlds: these, 'all', or else the quick ones.

    The exit code is 1 if a world is violated; the shortest way to the violation is shown.
    """
    if listed:
        for world in WORLDS.values():
            click.echo(f"{world.name}: {world.what}")
        return
    explore_worlds(_chosen(names), as_json=as_json)


def _chosen(names: tuple[str, ...]) -> Sequence[World]:
    if ALL in names:
        return tuple(WORLDS.values())
    return tuple(WORLDS[name] for name in names) or QUICK


def explore_worlds(chosen: Sequence[World], *, as_json: bool) -> None:
    """Explore one after the other; the exit code is 1 if one of them is violated."""
    show = _show_json if as_json else _show_text
    reports: list[Report] = []
    for report in _explored(chosen):
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


def _explored(chosen: Sequence[World]) -> Iterator[Report]:
    with Console(stderr=True, highlight=False).status("") as status:
        for world in chosen:
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
