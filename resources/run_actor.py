"""The actor of a Dagster run, for the records of the job that it acts on."""

import os
from collections.abc import Mapping

import dagster as dg

from laminar_core.records.actor import Actor, ActorKind
from laminar_core.resources.names import ACTOR_TAG
from laminar_core.store.attribution import environment_of
from laminar_core.store.owner import this_process

_PARENT_TAG = "dagster/parent_run_id"


def actor_of_run(run: dg.DagsterRun) -> Actor:
    """Return the actor that the tags of ``run`` name, acting through that run."""
    return actor_of(run.tags, run.run_id)


def child_environment(actor: Actor) -> dict[str, str]:
    """Return the whole environment of a ``laminar`` process that acts for ``actor``."""
    return {**os.environ, **environment_of(actor)}


def actor_of(tags: Mapping[str, str], run_id: str | None = None) -> Actor:
    """Return who started a run: a named person, else the sensor or schedule, else the run itself.

    *Re-execute* copies the tags of the previous run, so its actor says nothing about who requested
    the re-execution; Dagster sets ``user`` again if it knows its users.

    >>> actor_of({"dagster/sensor_name": "payments_recovery"}).name
    'sensor payments_recovery'
    """
    here = f"{this_process().user} in Dagster"
    again = tags.get(_PARENT_TAG)
    for tag in ("user",) if again else (ACTOR_TAG, "user"):
        if tag in tags:
            return Actor(tags[tag], ActorKind.PERSON, run_id=run_id)
    if again:
        return Actor(f"{here}, run {again[:8]} again", ActorKind.RUN, run_id=run_id)
    for kind in (ActorKind.SENSOR, ActorKind.SCHEDULE):
        if name := tags.get(f"dagster/{kind}_name"):
            return Actor(f"{kind} {name}", kind, run_id=run_id)
    return Actor(here, ActorKind.RUN, run_id=run_id)
