"""Numbers of one source at work: what it reads, and how far it is behind."""

from collections.abc import Iterable
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from laminar_core.records.record import JsonObject


class SourceNumbers(BaseModel):
    """Numbers of a source, of one worker or of all; None: unknown, or the source cannot know."""

    # A newer driver's heartbeat may have more.
    model_config = ConfigDict(frozen=True, extra="ignore")
    splits: int | None = None
    """Splits that are not read to their end; known if splits are read side by side."""
    splits_idle: int | None = None
    """Splits that do not hold event time back, because they have no rows."""
    splits_blocked: int | None = None
    """Splits with rows that cannot be read yet: in Kafka, behind an open transaction."""
    lag_rows: int | None = None
    """Rows that are there and were not read, at most."""
    lag_seconds: float | None = None
    """Age of the oldest row that is there and was not read; 0: all were read."""
    letters: int = 0
    """Bad rows that went to the side output, over the history of the job."""
    discovery_ms: float | None = None
    """Duration of the last search for splits; None: none has succeeded since the start."""
    files_late: int | None = None
    """Files that are there at the last search, came too late and are not read."""
    fetch_queue_bytes: int | None = None
    """Bytes that the clients of the input have fetched ahead."""
    headroom_checkpoint_id: int | None = None
    """The oldest checkpoint that a start could continue from, as long as its rows are there."""
    headroom_rows: int | None = None
    """Rows between the oldest one that the input has and the position of this checkpoint, at most;
    below 0: the input has deleted rows that it needs."""
    headroom_seconds: float | None = None
    """Time until the input may delete rows that this checkpoint needs, at least."""

    @classmethod
    def total(cls, parts: Iterable["SourceNumbers"]) -> "SourceNumbers":
        """Return the numbers over all workers; a number that one of them lacks is None."""
        known = tuple(parts)
        return cls(
            splits=_sum(part.splits for part in known),
            splits_idle=_sum(part.splits_idle for part in known),
            splits_blocked=_sum(part.splits_blocked for part in known),
            lag_rows=_sum(part.lag_rows for part in known),
            lag_seconds=longest(part.lag_seconds for part in known),
            fetch_queue_bytes=_sum(part.fetch_queue_bytes for part in known),
            letters=sum(part.letters for part in known),
        )


def sources_of(progress: JsonObject) -> dict[str, SourceNumbers]:
    """Return the numbers of the sources in a heartbeat, by operator; an older driver has none.

    Numbers that cannot be read are left out: they are shown, and nothing is restored from them.
    """
    found = progress.get("sources")
    if not isinstance(found, dict):
        return {}
    read: dict[str, SourceNumbers] = {}
    for name, numbers in found.items():
        with suppress(ValidationError):
            read[name] = SourceNumbers.model_validate(numbers)
    return read


def longest(times: Iterable[float | None]) -> float | None:
    """Return the longest time; None if one is unknown, or if there is none."""
    found = list(times)
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
