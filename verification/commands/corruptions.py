"""``python -m verification corruptions``: a store, damaged in thousands of ways, one by one."""

import json
from collections import Counter
from collections.abc import Iterator

import click
from rich.console import Console
from rich.progress import track

from verification.commands.seed_options import seed_options
from verification.corruption_campaign import Verdict, try_corruptions

VIOLATED_EXIT_CODE = 1
COUNT = 300
FINISH_EVERY = 10
"""Interval of corruptions after which the job is also run to its end."""


@click.command()
@seed_options(COUNT)
def corruptions(*, count: int, first: int, as_json: bool) -> None:
    """Damage a real store in N ways, one at a time, and recover from each.

    Every tenth time the job is also run to its end. The exit code is 1 if an answer is wrong.
    """
    damage(range(first, first + count), as_json=as_json)


def damage(seeds: range, *, as_json: bool) -> None:
    """Try one corruption per seed; exit with 1 if one is handled wrongly."""
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
            click.echo(f"  again: python -m verification corruptions 1 --from {verdict.seed}")
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
