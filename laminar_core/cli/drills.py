"""``laminar drills``: show the restore drills of a job and their results."""

import json

import click

from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.views import print_table, wall_time
from laminar_core.records.drill import DrillRecord
from laminar_core.store.drills import read_drills


@click.command()
@store_option
@job_option
@json_option
def drills(*, store: str, job: str | None, as_json: bool) -> None:
    """List the restore drills of a job, oldest first.

    `laminar drill` runs one.
    """
    found = read_drills(open_job(store, job))
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in found], indent=1))
        return
    headings = ("number", "at", "checkpoint", "outcome", "seconds", "bytes", "workers", "actor")
    print_table((*headings, "remarks"), map(_row, found))


def _row(one: DrillRecord) -> tuple[str, ...]:
    return (
        str(one.number),
        wall_time(one.started_at_ms),
        "" if one.checkpoint_id is None else str(one.checkpoint_id),
        one.outcome,
        f"{one.duration_ms / 1000:.1f}",
        f"{one.size_bytes:,}",
        str(one.workers),
        one.actor,
        "; ".join((one.reason, *one.problems)),
    )
