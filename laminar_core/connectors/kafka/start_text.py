"""The place where a Kafka source begins, as people write it on a command line."""

import json
from datetime import UTC, datetime, timedelta

from laminar_core.connectors.kafka.partitions import Start
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.units import instant_us, is_whole

_START = datetime(1970, 1, 1, tzinfo=UTC)


def start_of(text: str) -> Start:
    """Read ``earliest``, ``latest``, a time, or a JSON object with the offset of each partition.

    >>> start_of('{"payments/0": 120}')
    {'payments/0': 120}

    Raises:
        ConfigurationError: it is none of these (INVALID_OPTION).
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        if not text.startswith("{"):
            return _START + timedelta(microseconds=instant_us(text))
        offsets = dict(json.loads(text))
        if not all(map(is_whole, offsets.values())):
            raise TypeError  # noqa: TRY301 - as for all other texts
    except (ConfigurationError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{text!r} is no place to begin in a topic: give earliest, latest, a time in ISO 8601"
            ' with a zone, or offsets as {"topic/0": 120}',
        ) from error
    return offsets
