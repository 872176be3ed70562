"""Renames and stated positions, as a person gives them at a start: texts, and what they name.

The command line reads them at every call, so nothing of a pipeline is imported here.
"""

from typing import NamedTuple

from laminar_core.errors import ConfigurationError, ErrorCode

BEGINNING = "beginning"


class ColumnRename(NamedTuple):
    """One column of an operator with its name in the checkpoint, and in the pipeline."""

    operator_id: str
    before: str
    now: str

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"{self.operator_id}.{self.before} cannot be renamed to {self.now}"


class Rename(NamedTuple):
    """One operator or source with its name in the checkpoint, and in the pipeline."""

    before: str
    now: str

    @classmethod
    def parse(cls, text: str) -> "Rename | ColumnRename":
        """Read ``OLD=NEW`` or, for a column, ``OPERATOR.OLD=NEW``.

        >>> Rename.parse("totals=sums").now
        'sums'
        >>> Rename.parse("totals.shop=store")
        ColumnRename(operator_id='totals', before='shop', now='store')

        Raises:
            ConfigurationError: it has another form (INVALID_OPTION).
        """
        before, _, now = text.partition("=")
        if not before or not now or before == now:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{text!r} is no rename: give OLD=NEW or, for a column, OPERATOR.OLD=NEW",
            )
        operator_id, dot, column = before.partition(".")
        if not dot:
            return cls(before, now)
        if not operator_id or not column or column == now:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{text!r} is no rename of a column: give OPERATOR.OLD=NEW",
            )
        return ColumnRename(operator_id, column, now)


class ResetFrom(NamedTuple):
    """A source that is read again, and the position."""

    source: str
    position: str = BEGINNING

    @classmethod
    def parse(cls, text: str) -> "ResetFrom":
        """Read ``SOURCE=POSITION``.

        >>> ResetFrom.parse("payments=2026-03-01T12:00:00Z").position
        '2026-03-01T12:00:00Z'

        Raises:
            ConfigurationError: it has another form (INVALID_OPTION).
        """
        source, _, position = text.partition("=")
        if not source or not position:
            raise _invalid(
                f"{text!r} says of no source where it is read from: give SOURCE={BEGINNING}, or a"
                " position that the source understands"
            )
        return cls(source, position)

    def __str__(self) -> str:
        """Return the form that ``parse`` reads."""
        return f"{self.source}={self.position}"


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)
