"""The mode of a stream: whether its rows are appended, replace earlier ones, or come and go.

The mode is decided where the pipeline is described. There an operator is refused that does not take
it, and when the plan is made a sink that does not. So totals that are emitted again and again are
not appended to a table in silence, and a row that goes is not counted as one that comes.
"""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import Sink, accepted_by
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import OutputMode, Spec, keeps_keys, modes_taken_by
from laminar_core.operators.weights import WEIGHT, is_weighted


@dataclass(frozen=True, slots=True)
class Updates:
    """How rows of a stream relate to earlier ones."""

    mode: OutputMode = "append"
    key: tuple[str, ...] = ()
    """With ``upsert`` a row replaces the earlier one with equal values in these columns; with
    ``retract`` there is one row of them at a time. Empty if an operator has changed them."""

    @classmethod
    def made_by(cls, operator: Spec) -> "Updates":
        """Return the mode of what an operator with several inputs emits; most append."""
        return cls(getattr(operator, "output_mode", "append"), getattr(operator, "updates_by", ()))

    def behind(self, operator: Spec, before: pa.Schema, after: pa.Schema) -> "Updates":
        """Return the same for the output of an operator, whose input they describe.

        Raises:
            ConfigurationError: it loses the weights of rows (INVALID_PIPELINE).
        """
        mode: OutputMode | None = getattr(operator, "output_mode", None)
        if mode is not None:
            return Updates(mode, getattr(operator, "updates_by", ()))
        if self.mode == "retract":
            _require_weights(operator, after)
        kept = (self.mode == "upsert" or keeps_keys(operator)) and all(
            name in after.names and after.field(name).type == before.field(name).type
            for name in self.key
        )
        return self if kept else Updates(self.mode)

    def mixes_with(self, other: "Updates") -> bool:
        """Return whether rows of both streams can be in one."""
        return self.mode == other.mode and (self.mode == "retract" or self.key == other.key)

    def mixed(self) -> "Updates":
        """Return the same for a stream of several like it, which may each have a row of a key."""
        return Updates("retract") if self.mode == "retract" else self

    def require_taken_by(self, operator: Spec) -> None:
        """Refuse an operator that takes no such rows.

        Raises:
            ConfigurationError: the message says what to do (INVALID_PIPELINE).
        """
        takes = modes_taken_by(operator)
        if self.mode in takes:
            return
        goes = self.mode == "retract"
        taken = "goes for one that comes" if goes else "replaces an earlier one for another row"
        instead = "call .changes() on the stream of totals, or emit totals of windows"
        if not goes and "retract" in takes:
            instead = (
                "call .to_retract() on it to take the earlier row back, or .changes() to take each"
                " as a row of its own"
            )
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"{operator.operator_id} would take a row that {taken}: {instead}",
        )

    def check(self, name: str, sink: Sink) -> None:
        """Refuse a sink that takes no such rows, or replaces them by another key.

        Raises:
            ConfigurationError: the message says what to do (INVALID_PIPELINE).
        """
        if self.mode == "retract" and self.mode not in accepted_by(sink):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"sink {name} takes no row away, and rows of this stream come and go: call"
                f" .changes() before .sink() to append each with its {WEIGHT}, or use a sink that"
                " replaces and deletes rows by key, such as a Kafka topic with keys",
            )
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


def _require_weights(operator: Spec, after: pa.Schema) -> None:
    if not is_weighted(after):
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"{operator.operator_id} loses the column {WEIGHT}, and rows of this stream come and go"
            " by it: return it with each row that is made of a row",
        )
