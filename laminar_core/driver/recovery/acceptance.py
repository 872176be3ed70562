"""Acceptances of a person: a loss, a doubt or a repetition that would refuse a start.

``KIND:NAME`` or ``KIND:NAME=HOW``, with the name of a source, operator or sink. An acceptance is
good for one start, goes into the audit log, and is refused if nothing needs it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from laminar_core.errors import ConfigurationError, ErrorCode


class AcceptanceKind(StrEnum):
    """The problem that is accepted."""

    SOURCE_GAP = "source-gap"
    """The source no longer has rows behind the position of the checkpoint."""
    SOURCE_DROP = "source-drop"
    """The positions of a source that was removed are given up: if it returns, it starts anew."""
    STATE_DROP = "state-drop"
    """State of an operator that was removed, or columns that nothing needs any more, is dropped."""
    STATE_SINCE = "state-since"
    """Added aggregates of the operator count from this checkpoint on, not from the beginning."""
    LOOKUP_CHANGE = "lookup-change"
    """The lookup goes on with a table of other files than in the checkpoint."""
    SINK_LOST = "sink-lost"
    """Rows that were to be committed are gone: the job continues without them."""
    SINK_DOUBT = "sink-doubt"
    """The target does not tell whether output was committed: a person found out."""
    SINK_REPEAT = "sink-repeat"
    """The job goes back behind visible output, and readers see rows twice."""


_HOW: dict[AcceptanceKind, tuple[str, ...]] = {
    AcceptanceKind.SOURCE_GAP: ("earliest", "skip-split"),
    AcceptanceKind.SOURCE_DROP: (),
    AcceptanceKind.STATE_DROP: (),
    AcceptanceKind.STATE_SINCE: (),
    AcceptanceKind.LOOKUP_CHANGE: (),
    AcceptanceKind.SINK_LOST: (),
    AcceptanceKind.SINK_DOUBT: ("committed", "not"),
    AcceptanceKind.SINK_REPEAT: (),
}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One thing that is accepted for the source, operator or sink ``name``."""

    kind: AcceptanceKind
    name: str
    how: str | None = None

    def __str__(self) -> str:
        """Return the form in which it is given."""
        return f"{self.kind}:{self.name}" + (f"={self.how}" if self.how else "")


def parse_acceptance(text: str) -> Acceptance:
    """Read one acceptance.

    >>> parse_acceptance("sink-doubt:out=committed").how
    'committed'

    Raises:
        ConfigurationError: it has another form; the message lists the forms.
    """
    kind_name, _, rest = text.partition(":")
    name, equals, how = rest.partition("=")
    try:
        kind = AcceptanceKind(kind_name)
    except ValueError:
        raise _no_acceptance(text) from None
    known = _HOW[kind]
    if not name or bool(equals) != bool(known) or (known and how not in known):
        raise _no_acceptance(text)
    return Acceptance(kind, name, how or None)


def find_acceptance(
    accepted: Collection[Acceptance], kind: AcceptanceKind, name: str
) -> Acceptance | None:
    """Return what was accepted of this kind for what has this name; None if nothing was."""
    return next((a for a in accepted if (a.kind, a.name) == (kind, name)), None)


def unneeded(
    accepted: Sequence[Acceptance], used: Collection[Acceptance]
) -> ConfigurationError | None:
    """Return the refusal of acceptances that nothing needs; None if all are needed."""
    left = [str(acceptance) for acceptance in accepted if acceptance not in used]
    if not left:
        return None
    return ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"nothing needs --accept {', '.join(left)}: leave it out; `laminar recover --dry-run` "
        "shows what has to be accepted",
    )


def _no_acceptance(text: str) -> ConfigurationError:
    forms = (f"{kind}:NAME" + (f"={'|'.join(how)}" if how else "") for kind, how in _HOW.items())
    return ConfigurationError(
        ErrorCode.INVALID_OPTION, f"{text!r} cannot be accepted; give {', '.join(forms)}"
    )
