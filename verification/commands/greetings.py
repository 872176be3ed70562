"""``python -m verification greetings``: every order of events of workers that begin."""

import json

import click

from laminar_core.cli.options import json_option
from verification.greetings import GREETING_MUTANTS, GREETING_WORLDS, explore_greetings

WRONG_EXIT_CODE = 1


@click.command()
@json_option
def greetings(*, as_json: bool) -> None:
    """Explore workers that greet each other before they begin, in every order of events.

    The exit code is 1 if a worker begins too early or never, or if one of the mutants, which break
    a rule on purpose, is not caught.
    """
    is_wrong = False
    for name, world in {**GREETING_WORLDS, **GREETING_MUTANTS}.items():
        report = explore_greetings(world)
        is_mutant = name in GREETING_MUTANTS
        is_right = bool(report.violations) == is_mutant
        is_wrong = is_wrong or not is_right
        violations = len(report.violations)
        facts = {"states": report.states, "begun": report.begun, "violations": violations}
        if as_json:
            click.echo(json.dumps({"world": name, "mutant": is_mutant, "right": is_right, **facts}))
            continue
        verdict = ("caught" if is_mutant else "well") if is_right else "WRONG"
        numbers = f"{report.states:,} states, {report.begun:,} in which all have begun"
        click.echo(f"{'mutant: ' if is_mutant else ''}{name}: {numbers}: {verdict}")
        for violation in () if is_right else report.violations:
            click.echo(f"  {violation}")
    if is_wrong:
        raise SystemExit(WRONG_EXIT_CODE)
