"""The options of commands that try one case for each of many seeds."""

import click

from laminar_core.cli.options import Decorator, json_option, together


def seed_options(count: int) -> Decorator:
    """Return the decorator that adds a number of cases, the first seed, and ``--json``."""
    return together(
        click.argument("count", type=click.IntRange(min=1), default=count, metavar="[N]"),
        click.option(
            "--from",
            "first",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The first seed.",
        ),
        json_option,
    )


def case_options(count: int) -> Decorator:
    """Return the decorator that adds ``--cases``, ``--seed`` of the first one, and ``--json``."""
    return together(
        click.option(
            "--cases",
            type=click.IntRange(min=0),
            default=count,
            show_default=True,
            help="How many cases to draw.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The seed of the first case.",
        ),
        json_option,
    )
