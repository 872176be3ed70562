"""``laminar simulate --corruptions``: a real store, damaged in thousands of ways, one at a time."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import track

from laminar_core.testing.corruption_campaign import Verdict, try_corruptions

VIOLATED_EXIT_CODE = 1
FINISH_EVERY = 10
"""So many corruptions apart, the job is also run to its end."""

_OF_SEEDS = {"count": "--seeds", "seed": "--seed", "trace": "--trace"}


def or_corruptions(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option; with it a store is damaged instead of simulating seeds."""

    @wraps(command)
    def choose(*, corruptions: int | None, **values: Any) -> None:  # noqa: ANN401 - as click calls
        if corruptions is None:
            command(**values)
            return
        context = click.get_current_context()
        for name, option in _OF_SEEDS.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--corruptions has seeds of its own: leave {option} out")
        first = values["first"]
        damage(range(first, first + corruptions), as_json=values["as_json"])

    return click.option(
        "--corruptions",
        type=click.IntRange(min=1),
        help="Instead of seeds: damage a store in so many ways, and recover from each.",
    )(choose)


def damage(seeds: range, *, as_json: bool) -> None:
    """Try one corruption a seed; the exit code is 1 if one of them is answered wrongly."""
    outcomes: Counter[str] = Counter()
    objects: Counter[str] = Counter()
    for verdict in _tried(seeds):
        outcomes[verdict.outcome] += 1
        objects[verdict.corruption.object_class] += 1
        if as_json and verdict.outcome != "harmless":
            click.echo(json.dumps({"event": "corruption", **verdict.as_dict()}))
        elif verdict.outcome == "violation":
            click.echo(f"seed {verdict.seed}, {verdict.job}: {verdict.corruption}")
            click.echo(f"  {verdict.problem}")
            click.echo(f"  again: laminar simulate --corruptions 1 --from {verdict.seed}")
    said = {"corruptions": len(seeds), "outcomes": dict(outcomes), "objects": dict(objects)}
    if as_json:
        click.echo(json.dumps({"event": "summary", **said}))
    else:
        click.echo(f"{len(seeds):,} corruptions: {_counted(outcomes)}")
        click.echo(f"of: {_counted(objects)}")
    if outcomes["violation"]:
        raise SystemExit(VIOLATED_EXIT_CODE)


def _tried(seeds: range) -> Iterator[Verdict]:
    console = Console(stderr=True)
    return iter(
        track(
            try_corruptions(seeds, FINISH_EVERY),
            "corruptions",
            total=len(seeds),
            console=console,
            disable=not console.is_terminal,
        )
    )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in sorted(counts.items()))
