"""``laminar checkpoints``: what is in the store, and whether it is whole."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.table import Table

from laminar_core.checkpoint.types import CheckpointId
from laminar_core.cli.options import json_option, store_option
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.state.manifest import CheckpointManifest
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.object_store import open_object_store
from laminar_core.storage.summaries import CheckpointSummary
from laminar_core.storage.verification import VerifyReport

job_option = click.option("--job", help="Name of the job  [default: the only one in the store].")
id_argument = click.argument("checkpoint_id", type=click.IntRange(min=1))


@click.group()
def checkpoints() -> None:
    """See and verify the checkpoints of a job."""


@checkpoints.command("list")
@store_option
@job_option
@json_option
@click.option("--all", "everything", is_flag=True, help="Also those that did not complete.")
def list_checkpoints(*, store: str, job: str | None, as_json: bool, everything: bool) -> None:
    """List the checkpoints of a job, oldest first."""
    summaries = [
        summary
        for summary in _open(store, job).list_summaries()
        if everything or summary.outcome == "completed"
    ]
    if as_json:
        click.echo(json.dumps([asdict(summary) for summary in summaries], indent=1))
        return
    _print_table(
        ("id", "outcome", "kind", "mode", "triggered", "ms", "bytes", "generation", "remarks"),
        (_row(summary) for summary in summaries),
    )


@checkpoints.command()
@store_option
@job_option
@json_option
@id_argument
def show(*, store: str, job: str | None, as_json: bool, checkpoint_id: int) -> None:
    """Show one completed checkpoint: operators, sizes, event time."""
    manifest = _open(store, job).read_manifest(CheckpointId(checkpoint_id))
    if as_json:
        click.echo(manifest.model_dump_json(indent=1))
        return
    _print_manifest(manifest)


@checkpoints.command()
@store_option
@job_option
@json_option
@click.option("--all", "everything", is_flag=True, help="Every completed checkpoint.")
@click.argument("checkpoint_id", type=click.IntRange(min=1), required=False)
def verify(
    *, store: str, job: str | None, as_json: bool, everything: bool, checkpoint_id: int | None
) -> None:
    """Read every byte of a checkpoint (the newest by default) and compare with its manifest.

    The exit code is 5 if something is damaged.
    """
    opened = _open(store, job)
    ids = _ids_to_verify(opened, checkpoint_id, everything=everything)
    reports = [opened.verify(one) for one in ids]
    if as_json:
        click.echo(json.dumps([_report_as_json(report) for report in reports], indent=1))
    else:
        for report in reports:
            _print_report(report)
    if any(report.problem for report in reports):
        sys.exit(CorruptCheckpointError.exit_code)


def _open(store: str, job: str | None) -> CheckpointStore:
    if job is not None:
        return CheckpointStore.open(store, job)
    jobs = [name.rstrip("/") for name in open_object_store(store).children("")]
    jobs = [name for name in jobs if not name.startswith("_")]
    if len(jobs) != 1:
        found = f"has the jobs {', '.join(jobs)}: choose one with --job" if jobs else "has no jobs"
        raise ConfigurationError(ErrorCode.INVALID_OPTION, f"the store {store} {found}")
    return CheckpointStore.open(store, jobs[0])


def _ids_to_verify(
    store: CheckpointStore, checkpoint_id: int | None, *, everything: bool
) -> Sequence[CheckpointId]:
    if checkpoint_id is not None:
        return [CheckpointId(checkpoint_id)]
    completed = store.completed_ids()
    if not completed:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_CHECKPOINT, f"job {store.job} has no completed checkpoint"
        )
    return completed if everything else completed[-1:]


def _row(summary: CheckpointSummary) -> tuple[str, ...]:
    remarks = [
        "committed" if summary.committed else "",
        "orphan" if summary.orphan else "",
        summary.problem or summary.reason,
    ]
    return (
        str(summary.checkpoint_id),
        summary.outcome,
        summary.kind or "",
        summary.mode or "",
        _time(summary.triggered_at_ms),
        "" if summary.duration_ms is None else f"{summary.duration_ms:.0f}",
        "" if summary.size_bytes is None else f"{summary.size_bytes:,}",
        "" if summary.generation is None else str(summary.generation),
        ", ".join(remark for remark in remarks if remark),
    )


def _print_manifest(manifest: CheckpointManifest) -> None:
    click.echo(
        f"checkpoint {manifest.checkpoint_id} of {manifest.job}: {manifest.kind.value}, "
        f"{manifest.mode}, generation {manifest.generation}, parent "
        f"{manifest.parent_checkpoint_id or 'none'}"
    )
    click.echo(
        f"triggered {_time(manifest.triggered_at_ms)}, complete after "
        f"{manifest.duration_ms:.0f} ms, {manifest.size_bytes:,} bytes, "
        f"written by {manifest.code_version}"
    )
    _print_table(
        ("operator", "subtask", "rows", "bytes", "sync ms", "async ms", "properties"),
        (
            (
                entry.operator_id,
                str(entry.subtask_index),
                f"{entry.row_count:,}",
                f"{entry.state.size_bytes:,}" if entry.state is not None else "0",
                f"{entry.sync_ms:.2f}",
                f"{entry.async_ms:.1f}",
                ", ".join(f"{name}={value}" for name, value in entry.properties.items()),
            )
            for entry in manifest.subtasks
        ),
    )


def _report_as_json(report: VerifyReport) -> dict[str, object]:
    return {
        "checkpoint_id": report.checkpoint_id,
        "ok": report.problem is None,
        "problem": report.problem,
        "parts": [asdict(part) for part in report.parts],
    }


def _print_report(report: VerifyReport) -> None:
    size_bytes = sum(part.size_bytes for part in report.parts)
    verdict = "damaged" if report.problem else "whole"
    click.echo(
        f"checkpoint {report.checkpoint_id} is {verdict}: {len(report.parts)} files, "
        f"{size_bytes:,} bytes"
    )
    for part in report.parts:
        if part.problem:
            click.echo(f"  {part.problem}")


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        right = heading in {"id", "ms", "bytes", "rows", "generation", "subtask"}
        table.add_column(
            heading, justify="right" if right else "left", no_wrap=heading != "remarks"
        )
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
