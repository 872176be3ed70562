"""Numbers of one operator at work: rates, time at work, time behind full outputs, its queue."""

from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from laminar_core.records.record import JsonObject


class OperatorNumbers(BaseModel):
    """Numbers of an operator, a source or a sink over all workers; None: not known yet."""

    # A newer driver's heartbeat may have more.
    model_config = ConfigDict(frozen=True, extra="ignore")
    rows_in: int = 0
    """Rows that it has taken in this generation; a source takes none."""
    rows_out: int = 0
    """Rows that it has passed on in this generation, without side outputs; a sink passes none."""
    rows_in_per_s: float | None = None
    rows_out_per_s: float | None = None
    busy_ms: float = 0.0
    """Time at work in this generation, summed over the workers."""
    backpressured_ms: float = 0.0
    """Time for which full outputs have stopped it, in this generation, summed over the workers."""
    busy_share: float | None = None
    """Share of its time that the busiest worker has spent in it lately, from 0 to 1."""
    backpressured_share: float | None = None
    """Share of the time for which full outputs have stopped it lately, in the worker where that
    share is largest, from 0 to 1."""
    queued_batches: int | None = None
    """Batches that wait at its inputs; None: its input comes from the same vertex."""
    rows_expired: int = 0
    """Rows and values of its state that went because of their time, in the job's whole history:
    after their time to live, or, in joins bounded by time, when no partner could come any more."""


def operators_of(progress: JsonObject) -> dict[str, OperatorNumbers]:
    """Return the numbers of the operators in a heartbeat, in the order of the plan.

    An older driver has none. Numbers that cannot be read are left out.
    """
    found = progress.get("operators")
    if not isinstance(found, dict):
        return {}
    read: dict[str, OperatorNumbers] = {}
    for name, numbers in found.items():
        with suppress(ValidationError):
            read[name] = OperatorNumbers.model_validate(numbers)
    return read
