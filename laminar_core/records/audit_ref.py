"""References to records of the audit log, by which other objects of a job anchor it."""

from typing import Annotated

from pydantic import Field

from laminar_core.records.record import Positive, Record, Sha256


class AuditRef(Record):
    """A record of the audit log, by its number and its bytes."""

    number: Positive
    sha256: Sha256


Audited = Annotated[
    AuditRef | None,
    Field(
        exclude_if=lambda ref: ref is None,  # Written as before where there is nothing to name.
        description="The newest record of the audit log when this was written.",
    ),
]
"""A field of a record that holds on to the log; its default is None."""
