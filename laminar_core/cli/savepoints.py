"""``laminar savepoint``: take a savepoint, make one of a checkpoint, or show one."""

import json
import sys
from dataclasses import asdict

import click

from laminar_core.cli.control import ask, command_options
from laminar_core.cli.groups import GroupWithDefault, examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.savepoint_create import create
from laminar_core.cli.views import print_manifest, print_report, print_table, size_text, wall_time
from laminar_core.errors import CorruptCheckpointError
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.objectstore.opening import absolute_uri, is_bucket, open_object_store
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.commands import TakeSavepoint
from laminar_core.store.attribution import actor_of_environment
from laminar_core.store.savepoint_export import export_as
from laminar_core.store.savepoints import (
    FoundSavepoint,
    list_savepoints,
    read_savepoint,
)


@click.group(cls=GroupWithDefault, default="take")
def savepoint() -> None:
    """Take a savepoint of a running job, or look at savepoints.

    A savepoint belongs to you: it needs no other files, can be copied anywhere, and retention does
    not delete it. `laminar run --from-savepoint` starts a job from it.
    """


savepoint.add_command(create)


@savepoint.command(
    epilog=examples(
        "laminar savepoint take backups/before-upgrade --store build/store",
    ),
)
@command_options
@click.argument("target")
def take(*, store: str, job: str | None, target: str, **how: object) -> None:
    """Take a savepoint of a running job.

    TARGET is a new directory or URI.
    """
    ask(store, job, TakeSavepoint(target=absolute_uri(target)), **how)


@savepoint.command(
    epilog=examples(
        "laminar savepoint export 12 backups/twelve --store build/store",
    ),
)
@store_option
@job_option
@json_option
@click.option("--reason", default="exported", show_default=True, help="Kept in the savepoint.")
@click.argument("checkpoint_id", type=click.IntRange(min=1), metavar="ID")
@click.argument("target")
def export(
    *,
    store: str,
    job: str | None,
    as_json: bool,
    reason: str,
    checkpoint_id: CheckpointId,
    target: str,
) -> None:
    """Make a savepoint of checkpoint ID, whether or not the job runs.

    The savepoint contains what the checkpoint contains, including rows in flight.
    """
    opened = open_job(store, job)
    now_ms = SystemClock().now_ms
    actor = actor_of_environment(reason)
    uri = export_as(opened, checkpoint_id, absolute_uri(target), actor, now_ms)
    if as_json:
        click.echo(json.dumps({"checkpoint_id": checkpoint_id, "savepoint": uri}))
    else:
        say(f"checkpoint {checkpoint_id} is the savepoint {uri}")


@savepoint.command(
    "list",
    epilog=examples("laminar savepoint list backups"),
)
@json_option
@click.argument("uri")
def list_them(*, uri: str, as_json: bool) -> None:
    """List the savepoint at URI and those in the folders directly below."""
    found = list(list_savepoints(absolute_uri(uri)))
    if as_json:
        click.echo(json.dumps([_as_json(place, one) for place, one in found], indent=1))
        return
    headings = ("savepoint", "created", "job", "checkpoint", "mode", "size", "by", "remarks")
    print_table(headings, [_row(place, one) for place, one in found])


@savepoint.command(
    epilog=examples("laminar savepoint show backups/last"),
)
@json_option
@click.argument("uri")
def show(*, uri: str, as_json: bool) -> None:
    """Show one savepoint: where it comes from, and what is in it."""
    record = read_savepoint(open_object_store(absolute_uri(uri))).record
    if as_json:
        click.echo(record.model_dump_json(indent=1))
        return
    origin = record.origin
    say(f"of checkpoint {origin.checkpoint_id} of job {origin.job} in {origin.store}")
    say(f"made {wall_time(record.created_at_ms)} UTC by {record.actor}: {record.reason}")
    say(f"canonical: {'yes' if record.canonical else 'no'}")
    print_manifest(record.cut())


@savepoint.command(
    epilog=examples("laminar savepoint verify backups/last"),
)
@json_option
@click.argument("uri")
def verify(*, uri: str, as_json: bool) -> None:
    """Read every byte of a savepoint, and compare.

    The exit code is 5 if something is damaged.
    """
    report = read_savepoint(open_object_store(absolute_uri(uri))).verify()
    if as_json:
        parts = [asdict(part) for part in report.parts]
        click.echo(json.dumps({"ok": report.problem is None, "parts": parts}, indent=1))
    else:
        print_report(report)
    if report.problem:
        sys.exit(CorruptCheckpointError.exit_code)


def _row(place: str, found: FoundSavepoint | str) -> tuple[str, ...]:
    place = place.partition("?")[0] if is_bucket(place) else place
    name = place.rstrip("/").rpartition("/")[2]
    if isinstance(found, str):
        return name, "", "", "", "", "", "", found
    record, cut = found.record, found.record.cut()
    return (
        name,
        wall_time(record.created_at_ms),
        record.origin.job,
        str(record.origin.checkpoint_id),
        cut.mode,
        size_text(cut.size_bytes),
        record.actor,
        record.reason,
    )


def _as_json(place: str, found: FoundSavepoint | str) -> dict[str, object]:
    if isinstance(found, str):
        return {"savepoint": place, "problem": found}
    record, cut = found.record, found.record.cut()
    return {
        "savepoint": place,
        "problem": None,
        "origin": record.origin.model_dump(mode="json"),
        "created_at_ms": record.created_at_ms,
        "actor": record.actor,
        "reason": record.reason,
        "canonical": record.canonical,
        "mode": cut.mode,
        "size_bytes": cut.size_bytes,
    }
