"""The mode of a stream: whether its rows are appended, or replace earlier ones.

The mode is decided where the pipeline is described, and a sink that cannot take it is refused when
the plan is made. So totals that are emitted again and again are not appended to a table in silence.
"""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import Sink, accepted_by
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import OutputMode, Spec


@dataclass(frozen=True, slots=True)
class Updates:
    """How rows of a stream relate to earlier ones."""

    mode: OutputMode = "append"
    key: tuple[str, ...] = ()
    """With ``upsert``: a row replaces the earlier one with equal values in these columns; empty if
    an operator has changed them."""

    def behind(self, operator: Spec, before: pa.Schema, after: pa.Schema) -> "Updates":
        """Return the same for the output of an operator, whose input they describe."""
        mode: OutputMode | None = getattr(operator, "output_mode", None)
        if mode is not None:
            return Updates(mode, getattr(operator, "updates_by", ()))
        kept = all(
            name in after.names and after.field(name).type == before.field(name).type
            for name in self.key
        )
        return self if kept else Updates(self.mode)

    def check(self, name: str, sink: Sink) -> None:
        """Refuse a sink that takes no such rows, or replaces them by another key.

        Raises:
            ConfigurationError: the message says what to do (INVALID_PIPELINE).
        """
        of = f"of their {', '.join(self.key)}" if self.key else "of their key"
        if self.mode not in accepted_by(sink):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"sink {name} only appends, and rows of this stream replace earlier rows {of}:"
                " call .changes() before .sink() to append each change as a row of its own, use"
                " windows, or a sink that replaces rows by key",
            )
        replaced_by: tuple[str, ...] = getattr(sink, "updates_by", ())
        if self.mode == "upsert" and self.key and replaced_by and {*replaced_by} != {*self.key}:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"sink {name} replaces rows by {', '.join(replaced_by)}, and rows of this stream"
                f" replace earlier rows {of}: give the sink the same key",
            )
