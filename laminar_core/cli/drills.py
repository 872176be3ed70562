"""``laminar drills``: prove that a checkpoint restores, and list what was proved."""

import json

import click

from laminar_core.cli.drill import drill
from laminar_core.cli.groups import GroupWithDefault, examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.views import print_table, size_text, wall_time
from laminar_core.host.terminal import say
from laminar_core.records.drill import DrillRecord
from laminar_core.store.drills import read_drills


@click.group(cls=GroupWithDefault, default="list")
def drills() -> None:
    """Prove that checkpoints restore, and list such drills."""


drills.add_command(drill, "run")


@drills.command(
    "list",
    epilog=examples("laminar drills list --store build/store"),
)
@store_option
@job_option
@json_option
def list_drills(*, store: str, job: str | None, as_json: bool) -> None:
    """List the restore drills of a job and their results, oldest first."""
    problems: list[str] = []
    found = read_drills(open_job(store, job), problems)
    for problem in problems:
        say(f"cannot be read: {problem}", err=True)
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in found], indent=1))
        return
    headings = ("number", "at", "checkpoint", "outcome", "seconds", "size", "workers", "actor")
    print_table((*headings, "remarks"), map(_row, found))


def _row(one: DrillRecord) -> tuple[str, ...]:
    return (
        str(one.number),
        wall_time(one.started_at_ms),
        "" if one.checkpoint_id is None else str(one.checkpoint_id),
        one.outcome,
        f"{one.duration_ms / 1000:.1f}",
        size_text(one.size_bytes),
        str(one.workers),
        one.actor,
        "; ".join((one.reason, *one.problems)),
    )
