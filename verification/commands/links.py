"""``python -m verification links``: every order of events of a channel that loses frames."""

import json

import click

from laminar_core.cli.options import json_option
from verification.links import LINK_WORLDS, MUTANTS, explore_links

WRONG_EXIT_CODE = 1


@click.command()
@json_option
def links(*, as_json: bool) -> None:
    """Explore a channel whose connections break or fall silent, in every order of events.

    The exit code is 1 if a frame is lost, delivered twice or waited for in vain, or if one of the
    mutants, which break a rule on purpose, is not caught.
    """
    is_wrong = False
    for name, world in {**LINK_WORLDS, **MUTANTS}.items():
        report = explore_links(world)
        is_mutant = name in MUTANTS
        is_right = bool(report.violations) == is_mutant
        is_wrong = is_wrong or not is_right
        facts = {"states": report.states, "violations": len(report.violations)}
        if as_json:
            click.echo(json.dumps({"world": name, "mutant": is_mutant, "right": is_right, **facts}))
            continue
        verdict = ("caught" if is_mutant else "well") if is_right else "WRONG"
        prefix = "mutant: " if is_mutant else ""
        click.echo(f"{prefix}{name}: {report.states:,} states: {verdict}")
        for violation in () if is_right else report.violations:
            click.echo(f"  {violation}")
    if is_wrong:
        raise SystemExit(WRONG_EXIT_CODE)
