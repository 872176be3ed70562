"""The record of a restore drill, as stored and as monitoring reads it."""

from typing import Literal

from pydantic import Field

from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    DurationMs,
    Many,
    Positive,
    Prose,
    Record,
    TimeMs,
)


class DrilledOperator(Record):
    """One operator's state: in the checkpoint's files, and as it was restored."""

    operator_id: str
    rows_expected: Count
    rows_restored: Count
    digest_expected: str | None = Field(
        description="None: only the operator's own code can merge its rows; counts are compared."
    )
    digest_restored: str

    @property
    def is_equal(self) -> bool:
        """Return whether the restored rows equal the expected ones."""
        digests = {self.digest_restored, self.digest_expected or self.digest_restored}
        return self.rows_expected == self.rows_restored and len(digests) == 1


class DrillRecord(Record):
    """The result of one drill. Create-only."""

    format_version: Literal[1] = 1
    job: str
    number: Positive
    outcome: Literal["passed", "failed"]
    problems: Many[Prose] = ()
    error_code: str | None = None
    exit_code: Count = 0
    checkpoint_id: CheckpointNumber | None
    workers_before: Count
    workers: Positive
    operators: Many[DrilledOperator] = ()
    size_bytes: Count = Field(default=0, description="Copied from the job's store.")
    inflight_rows: Count = 0
    rows_read: Count = Field(default=0, description="New rows from the sources, in the drill.")
    completed_checkpoint_id: CheckpointNumber | None = Field(
        default=None, description="The further one, in the scratch store."
    )
    started_at_ms: TimeMs
    duration_ms: DurationMs
    actor: str
    reason: Prose
