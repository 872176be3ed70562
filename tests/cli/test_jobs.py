"""Which job is meant is one option of every command; see ``tests/store/test_jobs.py``."""

import click

from laminar_core.cli import jobs
from laminar_core.store.jobs import open_job


def test_commands_open_jobs_as_everybody_does():
    assert jobs.open_job is open_job


def test_the_option_may_be_left_out():
    @jobs.job_option
    def command(job: str | None) -> None:
        del job

    (option,) = click.command()(command).params
    assert (option.name, option.required) == ("job", False)
