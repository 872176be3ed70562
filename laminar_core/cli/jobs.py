"""Which job of a store a command is about: the one that is named, or the only one."""

import click

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.object_store import open_object_store

job_option = click.option("--job", help="Name of the job  [default: the only one in the store].")


def open_job(store: str, job: str | None) -> CheckpointStore:
    """Open the job, or the only one that there is.

    Raises:
        ConfigurationError: there is no such job, none at all, or a choice to make.
    """
    names = [name.rstrip("/") for name in open_object_store(store).children("")]
    jobs = [name for name in names if not name.startswith("_")]
    if job is None and len(jobs) == 1:
        return CheckpointStore.open(store, jobs[0])
    if job in jobs:
        return CheckpointStore.open(store, job)
    known = ", ".join(jobs)
    if not jobs:
        problem = "has no jobs"
    elif job is None:
        problem = f"has the jobs {known}: choose one with --job"
    else:
        problem = f"has no job {job}; its jobs: {known}"
    raise ConfigurationError(ErrorCode.INVALID_OPTION, f"the store {store} {problem}")
