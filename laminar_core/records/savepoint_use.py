"""The savepoint that a job was started from, as the job records it."""

from pydantic import Field

from laminar_core.records.record import Count, Record, Sha256


class SavepointUse(Record):
    """The savepoint that a generation started from, copied into the store as its base.

    ``timeline_floor``: checkpoints of earlier generations above it are off the timeline; 0: all.
    """

    uri: str
    sha256: Sha256 = Field(description="Of savepoint.json.")
    claimed: bool = Field(description="Deleted after the first checkpoint that builds on it.")
    timeline_floor: Count
