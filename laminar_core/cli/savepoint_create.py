"""``laminar savepoint create``: write a savepoint from Parquet files."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

import json
from collections.abc import Iterator

import click
import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.cli.groups import examples
from laminar_core.cli.options import json_option, store_option
from laminar_core.cli.start_options import program_options
from laminar_core.cli.target import load_pipeline
from laminar_core.driver.savepoint_writer import SavepointWriter
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.objectstore.opening import absolute_uri, open_object_store
from laminar_core.records.actor import Actor
from laminar_core.records.paths import check_job_name
from laminar_core.records.record import JsonObject
from laminar_core.store.attribution import actor_of_environment
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoints import require_free
from laminar_core.units import instant_us


@click.command(
    epilog=examples(
        "laminar savepoint create job.py backups/first --state totals=rows.parquet --reason moved",
    ),
)
@program_options
@click.argument("place", metavar="SAVEPOINT")
@store_option
@click.option("--job", help="Name of the job that starts from it  [default: the pipeline's].")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="OPERATOR[.TABLE]=FILE",
    help="Parquet file with all rows of one table of an operator's state; repeatable.",
)
@click.option(
    "--positions",
    "positions",
    multiple=True,
    metavar="SOURCE=FILE",
    help="Parquet file with the splits of a source and their offsets; repeatable  [default: its "
    "beginning].",
)
@click.option(
    "--event-time",
    metavar="INSTANT",
    help="Event time of the state (ISO 8601 with a zone): windows that ended before are not "
    "emitted again, and rows from before are late  [default: unknown].",
)
@click.option("--base", metavar="URI", help="A savepoint: what is not given stays as it is there.")
@click.option("--reason", required=True, help="Kept in the savepoint and in the audit log.")
@json_option
def create(  # noqa: PLR0913 - one parameter per option
    *,
    target: str,
    settings: tuple[str, ...],
    place: str,
    store: str,
    job: str | None,
    states: tuple[str, ...],
    positions: tuple[str, ...],
    event_time: str | None,
    base: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """Write a savepoint from Parquet files.

    It is the first state of a job, or a repaired one.

    TARGET builds the pipeline, as for `laminar run`. SAVEPOINT is a new directory or URI; nothing
    is ever overwritten. A file has the columns of the state, without key_group. A source begins at
    its beginning if neither --positions nor --base says otherwise.
    """
    pipeline = load_pipeline(target, settings)
    name, uri = check_job_name(job or pipeline.name), absolute_uri(place)
    plan = pipeline.plan()
    plan.check()
    writer = SavepointWriter(plan, name, None if base is None else absolute_uri(base))
    if event_time is not None:
        writer.event_time(instant_us(event_time))
    row_count = 0
    for what, rows in _files(states):
        operator_id, _, table = what.partition(".")
        writer.state(operator_id, rows, table)
        row_count += rows.num_rows
    for source, splits in _files(positions):
        writer.positions(source, splits)
    opened = CheckpointStore.open(store, name)
    require_free(opened, open_object_store(uri))
    given = {"savepoint": uri, "base": base, "state": list(states), "positions": list(positions)}
    given |= {} if event_time is None else {"event_time": event_time}
    _write(writer, opened, actor_of_environment(reason), given)
    if as_json:
        click.echo(json.dumps({"savepoint": uri, "job": name, "row_count": row_count}))
    else:
        say(f"{uri} is a savepoint for job {name}, with {row_count:,} rows of state given")


def _write(
    writer: SavepointWriter, store: CheckpointStore, actor: Actor, given: JsonObject
) -> None:
    """Write the savepoint; the job's audit log says so before and after."""
    store.objects.create()  # The job may be new, and its audit log begins here.
    audit = AuditLog(store.objects, store.paths, SystemClock().now_ms)
    intended = audit.append(action="create-savepoint", actor=actor, after=given)
    try:
        writer.write(str(given["savepoint"]), actor, intended.at_ms)
    except BaseException as error:
        audit.conclude(intended, "failed", reason=str(error))
        raise
    audit.conclude(intended, "done", reason=actor.reason)


def _files(options: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    """Read NAME=FILE options.

    Raises:
        ConfigurationError: one has another form, or its file cannot be read (INVALID_OPTION).
    """
    for option in options:
        what, _, file = option.partition("=")
        try:
            yield what, pq.read_table(file or "")
        except (OSError, pa.ArrowException) as error:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"{option!r} is no NAME=FILE of a Parquet file: {error}"
            ) from error
