"""Members of committables that Laminar itself reads; a sink may put them in, or leave them out."""

import json
from collections.abc import Collection, Iterable, Mapping

from laminar_core.records.record import JsonValue

ROWS = "rows"
"""The member with the number of rows."""
EXPIRES_AT_MS = "expires_at_ms"
"""The member with the wall-clock time at which the target gives the output up."""


def rows_of(committables: Iterable[Mapping[str, JsonValue]]) -> int | None:
    """Return the number of rows of all of them; None if one does not tell.

    >>> rows_of([{"rows": 3}, {"rows": 4}])
    7
    """
    rows = 0
    for committable in committables:
        number = _whole(committable.get(ROWS))
        if number is None:
            return None
        rows += number
    return rows


def first_expiry_ms(
    committables: Iterable[Mapping[str, JsonValue]], committed: Collection[str] = ()
) -> int | None:
    """Return when the first of them expires, without those whose ``key_of`` is in ``committed``.

    None if none of them expires.

    >>> first_expiry_ms([{"expires_at_ms": 9}, {"expires_at_ms": 7}, {}])
    7
    """
    expiring = [(time, c) for c in committables if (time := _whole(c.get(EXPIRES_AT_MS)))]
    for time_ms, committable in sorted(expiring, key=lambda each: each[0]):
        if key_of(committable) not in committed:
            return time_ms
    return None


def key_of(committable: Mapping[str, JsonValue]) -> str:
    """Return a text that is equal for equal committables: several checkpoints carry the same."""
    return json.dumps(committable, sort_keys=True)


def _whole(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
