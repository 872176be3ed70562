"""On whose behalf a Dagster run acts, for the audit log of the job that it acts on."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from laminar_core.resources.names import ACTOR_TAG
from laminar_core.store.owner import this_process

_PARENT_TAG = "dagster/parent_run_id"


@dataclass(frozen=True, slots=True)
class RunMandate:
    """Who wants something, and the run that does it."""

    actor: str
    run_id: str

    @classmethod
    def of(cls, run: dg.DagsterRun) -> "RunMandate":
        """Read from the tags that Dagster and ``laminar/actor`` give to a run."""
        return cls(actor_of(run.tags), run.run_id)

    def environment(self) -> dict[str, str]:
        """The environment of a ``laminar`` process that acts for this run."""
        return {**os.environ, "LAMINAR_ACTOR": self.actor, "LAMINAR_RUN_ID": self.run_id}


def actor_of(tags: Mapping[str, str]) -> str:
    """Who started a run: a person if one is named, else the sensor or schedule, else this user.

    *Re-execute* copies the tags of the run before, so who and what asked for that one says nothing
    of who asks for it again; ``user`` is given anew by a Dagster that knows its users.

    >>> actor_of({"dagster/sensor_name": "payments_recovery"})
    'sensor payments_recovery'
    """
    here = f"{this_process().user} in Dagster"
    if again := tags.get(_PARENT_TAG):
        return tags.get("user", f"{here}, run {again[:8]} again")
    for tag in (ACTOR_TAG, "user"):
        if tag in tags:
            return tags[tag]
    for kind in ("sensor", "schedule"):
        if name := tags.get(f"dagster/{kind}_name"):
            return f"{kind} {name}"
    return here
