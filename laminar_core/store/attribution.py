"""The actor on whose behalf a command acts, for the records that it writes."""

import os
from collections.abc import Mapping

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.store.owner import this_process

ACTOR_VARIABLE = "LAMINAR_ACTOR"
"""Environment variable: who acts, if that is not the user of the operating system."""

KIND_VARIABLE = "LAMINAR_ACTOR_KIND"
"""Environment variable: what acts; a person if it is not set. See ``ActorKind``."""

RUN_ID_VARIABLE = "LAMINAR_RUN_ID"
"""Environment variable: the orchestrator's run that acts."""

LENGTH_MAX = 200


def actor_of_environment(reason: str, environment: Mapping[str, str] = os.environ) -> Actor:
    """Return the actor that the three variables describe, or the user of the operating system.

    >>> actor_of_environment("a test", {"LAMINAR_ACTOR": "ann", "LAMINAR_RUN_ID": ""})
    Actor(name='ann', kind=<ActorKind.PERSON: 'person'>, reason='a test', run_id=None)

    Raises:
        ConfigurationError: one of them is no line of printable text, or too long; or the kind is
            not known; or the reason has bytes that are not UTF-8.
    """
    if not _is_text(reason):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"the reason is {reason!r}, which is not UTF-8: write it again",
        )
    name = _line(environment, ACTOR_VARIABLE) or this_process().user
    return Actor(name, _kind(environment), reason, _line(environment, RUN_ID_VARIABLE))


def environment_of(actor: Actor) -> dict[str, str]:
    """Return the variables by which a ``laminar`` process acts for ``actor``."""
    return {
        ACTOR_VARIABLE: actor.name,
        KIND_VARIABLE: actor.kind.value,
        RUN_ID_VARIABLE: actor.run_id or "",
    }


def _is_text(words: str) -> bool:
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(environment: Mapping[str, str]) -> ActorKind:
    kind = _line(environment, KIND_VARIABLE) or ActorKind.PERSON
    try:
        return ActorKind(kind)
    except ValueError:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{KIND_VARIABLE} is {kind!r}: set it to {', '.join(ActorKind)}, or leave it unset",
        ) from None


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
