"""Numbers of one sink at work: how fast it publishes, and when output that waits expires."""

from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from laminar_core.records.record import JsonObject


class SinkNumbers(BaseModel):
    """Numbers of a sink in one generation; None: unknown, or there is none."""

    # A newer driver's heartbeat may have more.
    model_config = ConfigDict(frozen=True, extra="ignore")
    publish_rows_per_s: float | None = None
    """Rows of the last commit that had any, per second that the sink took for it; None: there was
    none, or the sink does not count its rows."""
    transaction_expires_in_ms: int | None = None
    """Time until the target gives up output that waits for its commit; below 0: it may have done
    so. None: no such output waits, or it does not expire."""


def sinks_of(progress: JsonObject) -> dict[str, SinkNumbers]:
    """Return the numbers of the sinks in a heartbeat, by operator; an older driver has none.

    Numbers that cannot be read are left out: they are shown, and nothing is restored from them.
    """
    found = progress.get("sinks")
    if not isinstance(found, dict):
        return {}
    read: dict[str, SinkNumbers] = {}
    for name, numbers in found.items():
        with suppress(ValidationError):
            read[name] = SinkNumbers.model_validate(numbers)
    return read
