"""``laminar checkpoints pin`` and ``unpin``: keep a checkpoint whatever the retention policy."""

import json
from collections.abc import Mapping, Sequence

import click

from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import DURATION, json_option, store_option
from laminar_core.cli.retention_view import pin_as_json, pin_as_remark
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.record import JsonObject
from laminar_core.store.attribution import actor_of_environment
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins, StoredPin, pin_checkpoint, unpin_checkpoint
from laminar_core.units import duration_ms

_id_argument = click.argument("checkpoint_id", type=click.IntRange(min=1))
_name_option = click.option(
    "--name",
    default="pin",
    show_default=True,
    help="Name of the pin; a checkpoint can have several.",
)
_reason_option = click.option(
    "--reason", default="asked for", show_default=True, help="Recorded in the audit log."
)


@click.command(
    epilog=examples(
        "laminar checkpoints pin 12 --store build/store --reason 'the audit of May'",
    ),
)
@store_option
@job_option
@_id_argument
@_name_option
@_reason_option
@click.option(
    "--for", "duration", type=DURATION, help="Keep it for this time  [default: for ever]."
)
@json_option
def pin(  # noqa: PLR0913 - one parameter per option
    *,
    store: str,
    job: str | None,
    checkpoint_id: CheckpointId,
    name: str,
    reason: str,
    duration: str | None,
    as_json: bool,
) -> None:
    """Keep a checkpoint from being deleted by retention.

    It is kept until it is unpinned, or the time is over.
    """
    opened = open_job(store, job)
    hold_ms = None if duration is None else duration_ms(duration)
    record = pin_checkpoint(opened, checkpoint_id, name, *_by(reason), hold_ms)
    if as_json:
        click.echo(record.model_dump_json(indent=1, exclude={"format_version"}))
    else:
        how = "pinned" if duration is None else f"held for {duration}"
        say(f"checkpoint {checkpoint_id} is {how} as {name}")


@click.command(
    epilog=examples(
        "laminar checkpoints unpin 12 --store build/store --reason 'audited'",
    ),
)
@store_option
@job_option
@_id_argument
@_name_option
@_reason_option
@json_option
def unpin(
    *,
    store: str,
    job: str | None,
    checkpoint_id: CheckpointId,
    name: str,
    reason: str,
    as_json: bool,
) -> None:
    """Remove a pin: retention treats the checkpoint like others again."""
    opened = open_job(store, job)
    unpin_checkpoint(opened, checkpoint_id, name, *_by(reason))
    if as_json:
        click.echo(json.dumps({"checkpoint_id": checkpoint_id, "name": name}, indent=1))
    else:
        say(f"checkpoint {checkpoint_id} is no longer pinned as {name}")


def pins_by_checkpoint(store: CheckpointStore) -> dict[int, list[StoredPin]]:
    """Return all pins of a job, by checkpoint."""
    found: dict[int, list[StoredPin]] = {}
    for each in Pins(store).list():
        found.setdefault(each.checkpoint_id, []).append(each)
    return found


def pins_as_json(
    pins: Mapping[int, Sequence[StoredPin]], checkpoint_id: CheckpointId
) -> list[JsonObject]:
    """Return the pins of one checkpoint as JSON."""
    return [pin_as_json(each) for each in pins.get(checkpoint_id, ())]


def pins_as_remarks(pins: Mapping[int, Sequence[StoredPin]]) -> dict[int, list[str]]:
    """Return all pins as short remarks, by checkpoint."""
    now_ms = SystemClock().now_ms()
    return {c: [pin_as_remark(each, now_ms) for each in found] for c, found in pins.items()}


def _by(reason: str) -> tuple[Actor, int]:
    """Return the actor and the current time."""
    return actor_of_environment(reason), SystemClock().now_ms()
