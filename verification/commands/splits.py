"""``python -m verification splits``: every order of events of splits that are found."""

import json

import click

from laminar_core.cli.options import json_option
from verification.splits import MUTANTS, SPLIT_WORLDS, explore_splits

WRONG_EXIT_CODE = 1


@click.command()
@json_option
def splits(*, as_json: bool) -> None:
    """Explore splits that are found while a job runs, in every order of events.

    The exit code is 1 if a split is lost or read twice, or if one of the mutants, which break a
    rule on purpose, is not caught.
    """
    is_wrong = False
    for name, world in {**SPLIT_WORLDS, **MUTANTS}.items():
        report = explore_splits(world)
        is_mutant = name in MUTANTS
        is_right = bool(report.violations) == is_mutant
        is_wrong = is_wrong or not is_right
        facts = {"states": report.states, "cuts": report.cuts, "violations": len(report.violations)}
        if as_json:
            click.echo(json.dumps({"world": name, "mutant": is_mutant, "right": is_right, **facts}))
            continue
        verdict = ("caught" if is_mutant else "well") if is_right else "WRONG"
        numbers = f"{report.states:,} states, {report.cuts:,} checkpoints"
        click.echo(f"{'mutant: ' if is_mutant else ''}{name}: {numbers}: {verdict}")
        for violation in () if is_right else report.violations:
            click.echo(f"  {violation}")
    if is_wrong:
        raise SystemExit(WRONG_EXIT_CODE)
