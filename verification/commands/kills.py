"""``python -m verification kills``: drivers and workers of whole jobs that die or sleep."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from laminar_core.host.clock import SystemClock
from verification.commands.brokers import ROOT, WRONG_EXIT_CODE, count
from verification.commands.seed_options import case_options
from verification.servers.kafka_broker import jars_of

if TYPE_CHECKING:
    from verification.brokers.place import Place

CASES = 20
_MINUTE_MS = 60_000


@click.command()
@case_options(CASES)
@click.option(
    "--minutes",
    type=click.IntRange(min=1),
    help="Begin no further case after so many minutes.",
)
def kills(*, cases: int, seed: int, minutes: int | None, as_json: bool) -> None:
    """Kill, or stop and continue, drivers and workers of jobs from Kafka to Kafka.

    Each case draws a process, one of its steps, and whether it dies or sleeps there until it has
    been replaced. Then the rows that readers see are compared with those that were written. The
    exit code is 1 if a row is lost, doubled or out of order, or if a sink that is wrong on purpose
    is not caught.
    """
    jars = jars_of(ROOT)
    if jars is None:
        raise click.ClickException("no Kafka: `make servers` gets it")
    from verification.brokers.place import Place  # noqa: PLC0415 - needs an extra

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Place(jars, folder / "broker") as place:
            seeds = range(seed, seed + cases)
            is_right = _run(place, folder, seeds, minutes=minutes, as_json=as_json)
    if not is_right:
        raise SystemExit(WRONG_EXIT_CODE)


def _run(place: "Place", folder: Path, seeds: range, *, minutes: int | None, as_json: bool) -> bool:
    from verification.brokers.kills import CANARIES, draw_kill, run_kill  # noqa: PLC0415

    wrong, cases, fired, totals = 0, 0, Counter[str](), Counter[str]()
    clock, console = SystemClock(), Console(stderr=True)
    began_ms = clock.monotonic_ms()
    for seed in track(seeds, "cases", console=console, disable=not console.is_terminal):
        if minutes is not None and clock.monotonic_ms() - began_ms >= minutes * _MINUTE_MS:
            break
        case = draw_kill(seed)
        verdict = run_kill(place, folder, case)
        cases += 1
        fired[f"{case.who} {case.strike.act}"] += verdict.fired
        again = f"kills --cases 1 --seed {seed}"
        wrong += count(case.as_dict(), verdict, totals, again=again, as_json=as_json)
    missed = [n for n, case in CANARIES.items() if run_kill(place, folder, case).is_exact]
    said = {
        "cases": cases, "wrong": wrong, **totals, "struck": dict(fired),
        "canaries": len(CANARIES), "canaries_missed": missed,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps({"event": "summary", **said}))
    else:
        struck = ", ".join(f"{number:,} {name}" for name, number in sorted(fired.items()) if number)
        click.echo(
            f"{cases:,} cases, {totals['rows']:,} rows: {totals['lost']:,} lost, "
            f"{totals['doubled']:,} doubled, {totals['foreign']:,} foreign, "
            f"{totals['disordered']:,} out of order; {wrong} cases wrong"
        )
        click.echo(f"processes that were hit: {struck}")
        click.echo(f"canaries: {len(CANARIES) - len(missed)} of {len(CANARIES)} caught")
    return not wrong and not missed
