"""Records of files that a running job found missing or damaged in a completed checkpoint."""

from typing import Annotated, Literal

from pydantic import Field

from laminar_core.records.limits import PATH_LENGTH_MAX
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    Many,
    Positive,
    Record,
    Sealed,
    TimeMs,
)

DamageKind = Literal["missing", "length", "digest"]
"""missing: the file does not exist; length: its length differs; digest: its bytes differ."""

FILES_NAMED_MAX = 1_000
"""A record names so many files at most; ``file_count`` counts all of them."""


class DamagedFile(Record):
    """A file that is not what was written."""

    path: Annotated[str, Field(max_length=PATH_LENGTH_MAX)] = Field(
        description="Relative to the job's folder."
    )
    problem: DamageKind


class DamageRecord(Sealed):
    """A completed checkpoint with missing or damaged files. Create-only."""

    format_version: Literal[1] = 1
    job: str
    checkpoint_id: CheckpointNumber
    generation: Positive = Field(description="The one that found it.")
    found_at_ms: TimeMs
    file_count: Count
    files: Many[DamagedFile] = Field(description=f"The first {FILES_NAMED_MAX}.")
