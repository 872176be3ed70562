"""``python -m verification``: the proofs that take longer than a test may."""

import click

from verification.commands.brokers import brokers
from verification.commands.corruptions import corruptions
from verification.commands.forgeries import forgeries
from verification.commands.greetings import greetings
from verification.commands.kills import kills
from verification.commands.links import links
from verification.commands.messages import messages
from verification.commands.splits import splits
from verification.commands.worlds import worlds


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def verification() -> None:
    """Verify the checkpoint protocol and the store: every order, every damage, every forgery.

    And the decoders of foreign bytes: every message for what it is. And connectors, while a
    broker fails, or a process is killed.

    Random faults in whole jobs are a command of the product: laminar simulate.
    """


for _command in (
    worlds,
    corruptions,
    forgeries,
    messages,
    splits,
    greetings,
    links,
    brokers,
    kills,
):
    verification.add_command(_command)

if __name__ == "__main__":
    verification(prog_name="python -m verification")
