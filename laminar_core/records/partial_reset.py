"""A part of a pipeline that a generation begins anew, as the generation's base records it."""

from laminar_core.records.record import Many, Record


class PartialReset(Record):
    """Operators that begin without state, while all others continue from the base.

    It holds for every checkpoint of earlier generations, because the output of the part that they
    count on was withdrawn.
    """

    operators: Many[str]
    """Sources, operators and sinks: all that hangs together."""
