"""Select the job of a store that a command is about."""

import click

from laminar_core.store.jobs import open_job

__all__ = ["job_option", "open_job"]

job_option = click.option("--job", help="Name of the job  [default: the only one in the store].")
