"""Actors: who acts on a job, and why. Every record and every command carries one.

A decision that depends on who acted reads ``kind``, never the name: people choose their names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from laminar_core.records.record import Record


class ActorKind(StrEnum):
    """The kind of an actor. The values are stored: add new ones, and never change or remove one."""

    PERSON = "person"
    """A user at a command line, or one that a proxy or a tag of a run names."""
    SENSOR = "sensor"
    SCHEDULE = "schedule"
    RUN = "run"
    """A run of the orchestrator that names neither a person nor a sensor or schedule."""
    PROGRAM = "program"
    """A driver on its own account, or a user's program that names no user."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, why, and in which run of an orchestrator, if any."""

    name: str
    kind: ActorKind = ActorKind.PERSON
    reason: str = ""
    run_id: str | None = None

    def because(self, reason: str) -> "Actor":
        """Return the same actor with another reason."""
        return replace(self, reason=reason)


LAMINAR = Actor("laminar", ActorKind.PROGRAM, "started")
"""The actor of a driver for which no other actor is named."""


def kind_by_name(fields: Mapping[str, Any]) -> ActorKind:
    """Return the kind of ``fields["actor"]`` for a record of format 1, which has no such field.

    Laminar itself wrote these names, and nothing newer may depend on them.

    >>> kind_by_name({"actor": "sensor payments_recovery"})
    <ActorKind.SENSOR: 'sensor'>
    """
    name = str(fields.get("actor", ""))
    if name == LAMINAR.name:
        return ActorKind.PROGRAM
    for kind in (ActorKind.SENSOR, ActorKind.SCHEDULE):
        if name.startswith(f"{kind} "):
            return kind
    return ActorKind.PERSON


class Attributed(Record):
    """A record with ``actor`` and, since its format 2, ``actor_kind``.

    A subclass declares both fields itself, because the order of fields is part of the format, and
    the kind with ``default_factory=kind_by_name``. A record of format 1 is read with the kind that
    follows from the name, and written without it: byte for byte as it was, for its digest.
    """

    @model_validator(mode="after")
    def _says_the_kind_since_format_2(self) -> Self:
        version = getattr(self, "format_version", None)
        if ("actor_kind" in self.model_fields_set) is (version == 1):
            raise ValueError("actor_kind came with format 2, and belongs to each record since")
        return self

    @model_serializer(mode="wrap")
    def _without_the_kind_in_format_1(self, fields: SerializerFunctionWrapHandler) -> Any:  # noqa: ANN401 - what pydantic says
        written = fields(self)
        if written["format_version"] == 1:
            del written["actor_kind"]
        return written
