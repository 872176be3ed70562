"""How other objects name a record of the audit log, so that it cannot go without them."""

from laminar_core.state.record import Positive, Record, Sha256


class AuditRef(Record):
    """A record of the audit log, by its number and its bytes."""

    number: Positive
    sha256: Sha256
