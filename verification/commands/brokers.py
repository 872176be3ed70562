"""``python -m verification brokers``: connectors against a real broker that fails in every way."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from verification.commands.seed_options import case_options
from verification.servers.kafka_broker import jars_of

if TYPE_CHECKING:
    from verification.brokers.judge import Verdict
    from verification.brokers.place import Place

WRONG_EXIT_CODE = 1
CASES = 40
ROOT = Path(__file__).parents[2]


@click.command()
@case_options(CASES)
def brokers(*, cases: int, seed: int, as_json: bool) -> None:
    """Let a broker and the network before it fail at every step of sources and sinks.

    Each case draws a fault, a step, and whether the process lives, dies or sleeps there. Then the
    rows that readers see are compared with those that were written. The exit code is 1 if a row is
    lost, doubled or out of order, or if a connector that is wrong on purpose is not caught.
    """
    jars = jars_of(ROOT)
    if jars is None:
        raise click.ClickException("no Kafka: `make servers` gets it")
    from verification.brokers.place import Place  # noqa: PLC0415 - needs an extra

    with tempfile.TemporaryDirectory() as folder, Place(jars, Path(folder)) as place:
        is_right = _run(place, range(seed, seed + cases), as_json=as_json)
    if not is_right:
        raise SystemExit(WRONG_EXIT_CODE)


def _run(place: "Place", seeds: range, *, as_json: bool) -> bool:
    from verification.brokers.campaign import CANARIES, LOSSES, draw, run  # noqa: PLC0415

    wrong, fired, totals = 0, Counter[str](), Counter[str]()
    console = Console(stderr=True)
    shown = track(seeds, "cases", console=console, disable=not console.is_terminal)
    for seed in shown:
        case = draw(seed)
        verdict = run(place, case)
        fired[case.as_dict()["event"]] += bool(verdict.fired)
        again = f"brokers --cases 1 --seed {seed}"
        wrong += count(case.as_dict(), verdict, totals, again=again, as_json=as_json)
    for name, act in LOSSES.items():
        wrong += count({"loss": name}, act(place), totals, as_json=as_json)
    missed = [name for name, act in CANARIES.items() if act(place).is_exact]
    said = {
        "cases": len(seeds), "wrong": wrong, **totals, "events": dict(fired),
        "canaries": len(CANARIES), "canaries_missed": missed,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps({"event": "summary", **said}))
    else:
        faults = ", ".join(f"{count:,} {name}" for name, count in sorted(fired.items()) if count)
        click.echo(
            f"{len(seeds):,} cases and {len(LOSSES)} losses, {totals['rows']:,} rows: "
            f"{totals['lost']:,} lost, {totals['doubled']:,} doubled, {totals['foreign']:,} "
            f"foreign, {totals['disordered']:,} out of order; {wrong} cases wrong"
        )
        click.echo(f"cases in which a fault struck: {faults}")
        click.echo(f"canaries: {len(CANARIES) - len(missed)} of {len(CANARIES)} caught")
    return not wrong and not missed


def count(
    what: dict[str, object],
    verdict: "Verdict",
    totals: Counter[str],
    *,
    again: str = "",
    as_json: bool,
) -> bool:
    """Add a verdict to the totals; say it if it is wrong; return whether it is.

    ``again`` are the words that run the case again; empty: there are none.
    """
    for name in ("rows", "lost", "doubled", "foreign", "disordered", "fired"):
        totals[name] += int(getattr(verdict, name))
    if as_json:
        click.echo(json.dumps({"case": what, "verdict": verdict.as_dict()}))
    elif not verdict.is_exact:
        click.echo(f"WRONG: {what}: {verdict.as_dict()}")
        if again:
            click.echo(f"  again: python -m verification {again}")
    return not verdict.is_exact
