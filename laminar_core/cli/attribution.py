"""On whose behalf a command acts: what every record and the audit log say of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.store.owner import this_process
from laminar_core.store.savepoints import Author

ACTOR_VARIABLE = "LAMINAR_ACTOR"
"""Environment variable: who wants it, if that is not the user of the operating system."""

RUN_ID_VARIABLE = "LAMINAR_RUN_ID"
"""Environment variable: the orchestrator's run that does it."""

LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who wants something, and the run that does it for them, if any."""

    actor: str
    run_id: str | None = None

    def author(self, reason: str, now_ms: int) -> Author:
        """The same for acts on checkpoints, with why and when."""
        return Author(self.actor, reason, now_ms, self.run_id)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Attribution":
        """What the two variables say; the user of the operating system if nothing.

        >>> Attribution.of_environment({"LAMINAR_ACTOR": "ann", "LAMINAR_RUN_ID": ""})
        Attribution(actor='ann', run_id=None)

        Raises:
            ConfigurationError: one of them is no line of printable text, or too long.
        """
        actor = _line(environment, ACTOR_VARIABLE)
        return cls(actor or this_process().user, _line(environment, RUN_ID_VARIABLE))


def _line(environment: Mapping[str, str], variable: str) -> str | None:
    """None if it is not set, empty or blank."""
    value = environment.get(variable, "").strip()
    if len(value) > LENGTH_MAX or not value.isprintable():
        shown = repr(value) if len(value) <= LENGTH_MAX else f"{value[:20]!r}… ({len(value)} long)"
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{variable} is {shown}: set it to one line of printable text, of {LENGTH_MAX} "
            "characters at most, or leave it unset",
        )
    return value or None
