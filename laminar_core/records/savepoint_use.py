"""What a job remembers of the savepoint that it started from."""

from pydantic import Field

from laminar_core.records.record import Count, Record, Sha256


class SavepointUse(Record):
    """Which savepoint a generation started from, copied into the store as its base.

    ``timeline_floor``: checkpoints of earlier generations above it are off the timeline; 0: all.
    """

    uri: str
    sha256: Sha256 = Field(description="Of savepoint.json.")
    claimed: bool = Field(description="Deleted after the first checkpoint that builds on it.")
    timeline_floor: Count
