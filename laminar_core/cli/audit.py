"""``laminar audit``: show and verify the audit log of a job."""

import json
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise

import click

from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.views import print_table, wall_time
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.records.audit import AuditRecord, AuditReport, Finding, Outcome
from laminar_core.records.record import JsonObject
from laminar_core.store.audit_key import KEY_VARIABLE, find_key
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.audit_outcomes import read_outcomes

_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


@click.group()
def audit() -> None:
    """Show who did what to a job, and verify the audit log."""


@audit.command(
    "list",
    epilog=examples(
        "laminar audit list --store build/store --since 2026-01-31",
        "laminar audit list --store build/store --action restore --json",
    ),
)
@store_option
@job_option
@json_option
@click.option("--action", "actions", multiple=True, help="List only this action; repeatable.")
@click.option("--actor", "actors", multiple=True, help="List only this actor; repeatable.")
@click.option(
    "--since", type=click.DateTime(_DATES), help="List only records from this time on, in UTC."
)
def list_records(
    *,
    store: str,
    job: str | None,
    as_json: bool,
    actions: tuple[str, ...],
    actors: tuple[str, ...],
    since: datetime | None,
) -> None:
    """List the actions of users and programs, oldest first."""
    since_ms = 0 if since is None else since.replace(tzinfo=UTC).timestamp() * 1000
    log = _open_log(store, job)
    every = list(log.records())
    records = [
        record
        for record in every
        if _is_in(record.action, actions)
        and _is_in(record.actor, actors)
        and record.at_ms >= since_ms
    ]
    results = read_outcomes(log.objects, log.paths, every, (record.number for record in records))
    if as_json:
        said = [{**record.model_dump(), "result": results[record.number]} for record in records]
        click.echo(json.dumps(said, indent=1))
    else:
        print_table(
            ("number", "at", "action", "outcome", "actor", "generation", "reason"),
            (_row(record, results[record.number]) for record in records),
        )
    if any(later != number + 1 for number, later in pairwise([0, *(r.number for r in every)])):
        say("some records are missing or unreadable: see `laminar audit verify`", err=True)


@audit.command(
    epilog=examples("laminar audit show 12 --store build/store"),
)
@store_option
@job_option
@json_option
@click.argument("number", type=click.IntRange(min=1))
def show(*, store: str, job: str | None, as_json: bool, number: int) -> None:
    """Show one action with everything that was recorded."""
    log = _open_log(store, job)
    record = log.read(number)
    if record is None:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the audit log of {log.paths.job} has no record {number}: see `laminar audit list`",
        )
    result = read_outcomes(log.objects, log.paths, log.records(), [number]).get(number)
    if as_json:
        click.echo(json.dumps({**record.model_dump(), "result": result}, indent=1))
    else:
        for line in _lines(record, result or record.outcome):
            say(line)


@audit.command(
    epilog=examples(
        "laminar audit verify --store build/store",
        "laminar audit verify --store build/store --key-env MY_KEY",
    ),
)
@store_option
@job_option
@json_option
@click.option(
    "--key-env",
    metavar="NAME",
    help="Environment variable with the key that signs the records"
    f"  [default: {KEY_VARIABLE}, if it is set].",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=1),
    default=1,
    metavar="NUMBER",
    help="Report damage only from this record on; older damage is known.",
)
def verify(*, store: str, job: str | None, as_json: bool, key_env: str | None, first: int) -> None:
    """Find every record that was tampered with.

    That means edited, removed, moved, inserted, or cut off. The exit code is 5 if there is one.
    """
    key = find_key() if key_env is None else _key_in(key_env)
    report = _since(_open_log(store, job).verify(key=key), first)
    if as_json:
        said = {"ok": not report.findings, "signatures_checked": key is not None}
        click.echo(json.dumps({**said, **asdict(report)}, indent=1))
    else:
        _print_report(report, "checked" if key is not None else "not checked")
    if report.findings:
        sys.exit(CorruptCheckpointError.exit_code)


def _open_log(store: str, job: str | None) -> AuditLog:
    opened = open_job(store, job)
    return AuditLog(opened.objects, opened.paths, SystemClock().now_ms)


def _is_in(value: str, wanted: Collection[str]) -> bool:
    return not wanted or value in wanted


def _key_in(variable: str) -> bytes:
    key = find_key(variable)
    if key is None:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"--key-env: the environment variable {variable} is not set"
        )
    return key


def _since(report: AuditReport, first: int) -> AuditReport:
    findings = tuple(f for f in report.findings if f.number is None or f.number >= first)
    if report.newest.number < first - 1:
        problem = f"the newest record is {report.newest.number}: {first - 1} was looked into"
        findings = (Finding("missing", first - 1, problem), *findings)
    return AuditReport(report.record_count, report.newest, findings)


def _print_report(report: AuditReport, signatures: str) -> None:
    for finding in report.findings:
        say(f"{finding.kind}: {finding.problem}")
    count = f"{report.record_count:,} record{'' if report.record_count == 1 else 's'}"
    summary = f"{count}, signatures {signatures}"
    if report.findings:
        say(f"the audit log is not as it was written: {summary}")
    elif report.record_count:
        newest = f"the newest has SHA-256 {report.newest.sha256}"
        say(f"the audit log is intact: {summary}, {newest}")
    else:
        say("the audit log is empty")


def _row(record: AuditRecord, result: Outcome) -> tuple[str, ...]:
    generation = (record.after or {}).get("generation")
    return (
        str(record.number),
        wall_time(record.at_ms),
        record.action,
        result,
        record.actor,
        "" if generation is None else str(generation),
        record.reason,
    )


def _lines(record: AuditRecord, result: Outcome) -> Iterator[str]:
    writer = record.writer
    ending = "" if record.intent is None else f", the outcome of record {record.intent}"
    yield f"record {record.number} of {record.job}: {record.action}, {result}{ending}"
    yield f"at {wall_time(record.at_ms)} by {record.actor}: {record.reason}"
    place = writer.host_id.partition("/")[0]
    run = "" if record.run_id is None else f", run {record.run_id}"
    yield (
        f"process {writer.pid} of {writer.user} on {place}, {record.code_version}{run}, "
        f"{'not signed' if record.signature is None else 'signed'}"
    )
    yield from _facts("before", record.before)
    yield from _facts("after", record.after)


def _facts(title: str, facts: JsonObject | None) -> Iterable[str]:
    if not facts:
        return
    yield f"{title}:"
    for name, value in facts.items():
        yield f"  {name}: {json.dumps(value, ensure_ascii=False)}"
