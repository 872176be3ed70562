"""The savepoint that a job was started from, as the job records it."""

from typing import Annotated

from pydantic import Field

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.limits import COUNT_MAX
from laminar_core.records.record import Record, Sha256


class SavepointUse(Record):
    """The savepoint that a generation started from, copied into the store as its base.

    ``timeline_floor``: checkpoints of earlier generations above it are off the timeline; 0: all.
    """

    uri: str
    sha256: Sha256 = Field(description="Of savepoint.json.")
    claimed: bool = Field(description="Deleted after the first checkpoint that builds on it.")
    timeline_floor: Annotated[CheckpointId, Field(ge=0, le=COUNT_MAX)]
