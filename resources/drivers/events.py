"""Parse the lines of a driver.

One JSON object per event (``laminar_core.driver.events``), or text.
"""

import json
from typing import Any, cast

DriverEvent = dict[str, Any]
"""One line of a driver as it came."""


def event_of(text: str) -> DriverEvent | None:
    """Return the event in a line; None if it has none.

    >>> event_of('{"event": "data-flowing", "generation": 2}')
    {'event': 'data-flowing', 'generation': 2}
    >>> event_of("Traceback (most recent call last):")
    """
    if not text.startswith("{"):
        return None
    try:
        event = json.loads(text)
    except ValueError:
        return None
    is_event = isinstance(event, dict) and "event" in event
    return cast("DriverEvent", event) if is_event else None


def sentence(event: DriverEvent) -> str:
    """Return an event as text.

    >>> sentence({"event": "data-flowing", "time_ms": 5, "generation": 2})
    'data-flowing: generation 2'
    """
    facts = ", ".join(f"{k} {v}" for k, v in event.items() if k not in {"event", "time_ms"})
    return f"{event['event']}: {facts}" if facts else event["event"]
