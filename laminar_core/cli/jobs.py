"""Select the job of a store that a command is about."""

from laminar_core.cli.options import SETTINGS, option_of
from laminar_core.store.jobs import open_job

__all__ = ["job_option", "open_job"]

job_option = option_of(
    SETTINGS["job"], "Job", help="Name of the job; by default the only one in the store."
)
