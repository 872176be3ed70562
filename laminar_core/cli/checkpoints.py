"""``laminar checkpoints``: show the checkpoints in a store, and verify them."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields

import click

from laminar_core.cli.control import checkpoint
from laminar_core.cli.groups import CommandEntry, PartlyLazyGroup, examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.pins import pin, pins_as_json, pins_as_remarks, pins_by_checkpoint, unpin
from laminar_core.cli.views import (
    ROWS_SHOWN,
    print_json,
    print_manifest,
    print_report,
    print_summaries,
)
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.host.terminal import say
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.limits import NUMBER_MAX
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.summaries import CheckpointSummary
from laminar_core.store.verification import VerifyReport

_SUMMARY_FIELDS = tuple(field.name for field in fields(CheckpointSummary))

newest_by_default = click.argument("checkpoint_id", type=click.IntRange(min=1), required=False)


@click.group(
    cls=PartlyLazyGroup,
    later=(CommandEntry("diff", "diff:diff"),),
)
def checkpoints() -> None:
    """Take, show, read and verify the checkpoints of a job."""


checkpoints.add_command(checkpoint, "take")
checkpoints.add_command(pin)
checkpoints.add_command(unpin)


@checkpoints.command(
    "list",
    epilog=examples(
        "laminar checkpoints list --store build/store",
        "laminar checkpoints list --store build/store --all --json",
    ),
)
@store_option
@job_option
@json_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Include failed attempts and deleted ones.",
)
def list_checkpoints(*, store: str, job: str | None, as_json: bool, everything: bool) -> None:
    """List the checkpoints of a job, oldest first."""
    opened = open_job(store, job)
    pins = pins_by_checkpoint(opened)
    summaries = [
        summary
        for summary in opened.list_summaries()
        if everything or (summary.outcome == "completed" and not summary.deleted) or summary.problem
    ]
    if as_json:
        told = [_as_json(s) | {"pins": pins_as_json(pins, s.checkpoint_id)} for s in summaries]
        print_json(told)
    else:
        print_summaries(summaries, pins_as_remarks(pins))


@checkpoints.command(
    epilog=examples(
        "laminar checkpoints show --store build/store",
        "laminar checkpoints show 12 --store build/store --json",
    ),
)
@store_option
@job_option
@json_option
@newest_by_default
def show(*, store: str, job: str | None, as_json: bool, checkpoint_id: CheckpointId | None) -> None:
    """Show the operators, sizes and event time of a checkpoint.

    It is the newest completed one by default.
    """
    opened = open_job(store, job)
    manifest = opened.manifests.read(_ids_to_read(opened, checkpoint_id, everything=False)[0])
    if as_json:
        click.echo(manifest.model_dump_json(indent=1))
        return
    print_manifest(manifest)
    for remark in pins_as_remarks(pins_by_checkpoint(opened)).get(manifest.checkpoint_id, ()):
        say(remark)


@checkpoints.command(
    epilog=examples(
        "laminar checkpoints verify --store build/store",
        "laminar checkpoints verify --store build/store --all",
    ),
)
@store_option
@job_option
@json_option
@click.option("--all", "everything", is_flag=True, help="Verify every completed checkpoint.")
@newest_by_default
def verify(
    *,
    store: str,
    job: str | None,
    as_json: bool,
    everything: bool,
    checkpoint_id: CheckpointId | None,
) -> None:
    """Compare every byte of a checkpoint with its manifest.

    It is the newest one by default. The exit code is 5 if something is damaged. Checkpoints that
    retention deletes meanwhile are skipped by --all.
    """
    if everything and checkpoint_id is not None:
        raise click.UsageError("give an id, or --all")
    opened = open_job(store, job)
    ids = _ids_to_read(opened, checkpoint_id, everything=everything)
    reports = list(_verified(opened, ids)) if everything else [opened.verify(ids[0])]
    if as_json:
        click.echo(json.dumps([_report_as_json(report) for report in reports], indent=1))
    else:
        for report in reports:
            print_report(report)
    if any(report.problem for report in reports):
        sys.exit(CorruptCheckpointError.exit_code)


@checkpoints.command(
    "read",
    epilog=examples(
        "laminar checkpoints read --store build/store --operator totals --limit 5",
        "laminar checkpoints read 12 --store build/store --inflight --json",
    ),
)
@store_option
@job_option
@json_option
@click.option("--inflight", is_flag=True, help="Print in-flight data instead of state.")
@click.option("--operator", "operator_id", help="Print only this operator.")
@click.option("--subtask", type=click.IntRange(min=0), help="Print only this subtask.")
@click.option(
    "--input-id", type=click.IntRange(min=0), help="With --inflight: print only this queue."
)
@click.option(
    "--limit",
    type=click.IntRange(0, NUMBER_MAX),
    help=f"Rows and marks to print of each file  [default: {ROWS_SHOWN}; all with --json].",
)
@newest_by_default
def read_checkpoint(  # noqa: PLR0913 - one parameter per option
    *,
    store: str,
    job: str | None,
    as_json: bool,
    inflight: bool,
    operator_id: str | None,
    subtask: int | None,
    input_id: int | None,
    limit: int | None,
    checkpoint_id: CheckpointId | None,
) -> None:
    """Print the rows of a checkpoint: state, or in-flight data.

    It is the newest completed one by default.
    """
    from laminar_core.cli import contents as printed  # noqa: PLC0415 - Arrow takes long to import

    if input_id is not None and not inflight:
        raise click.UsageError("--input-id needs --inflight: state has no inputs")
    opened = open_job(store, job)
    manifest = opened.manifests.read(_ids_to_read(opened, checkpoint_id, everything=False)[0])
    selection = printed.Selection(operator_id, subtask, input_id)
    selection.check(manifest)
    contents = printed.inflight_contents if inflight else printed.state_contents
    if inflight and not any(map(selection.takes, manifest.inflight_data)):
        where = "there" if manifest.inflight_data else f"in it, its mode is {manifest.mode}"
        say(f"checkpoint {manifest.checkpoint_id}: nothing was in flight {where}", err=True)
    with opened.reading(manifest.checkpoint_id):
        if as_json:
            printed.print_contents_as_json(contents(opened, manifest, selection), limit)
        else:
            shown = ROWS_SHOWN if limit is None else limit
            printed.print_contents(contents(opened, manifest, selection), shown)


def _ids_to_read(
    store: CheckpointStore, checkpoint_id: CheckpointId | None, *, everything: bool
) -> Sequence[CheckpointId]:
    if checkpoint_id is not None:
        return [checkpoint_id]
    completed = store.manifests.ids()
    if not completed:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_CHECKPOINT, f"job {store.job} has no completed checkpoint"
        )
    return completed if everything else completed[-1:]


def _verified(store: CheckpointStore, ids: Sequence[CheckpointId]) -> Iterator[VerifyReport]:
    """Verify checkpoints, but for those that retention deletes meanwhile."""
    for checkpoint_id in ids:
        try:
            yield store.verify(checkpoint_id)
        except ConfigurationError as error:
            if error.code not in (ErrorCode.BEING_DELETED, ErrorCode.NO_SUCH_CHECKPOINT):
                raise
            say(f"checkpoint {checkpoint_id} is skipped: retention deletes it", err=True)


def _as_json(summary: CheckpointSummary) -> dict[str, object]:
    """Return the fields; ``asdict`` would copy each value, which takes ten times as long."""
    return {name: getattr(summary, name) for name in _SUMMARY_FIELDS}


def _report_as_json(report: VerifyReport) -> dict[str, object]:
    return {
        "checkpoint_id": report.checkpoint_id,
        "ok": report.problem is None,
        "problem": report.problem,
        "parts": [asdict(part) for part in report.parts],
    }
