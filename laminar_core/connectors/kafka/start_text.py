"""The place where a Kafka source begins, as people write it on a command line."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

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
        return {split: _offset(given) for split, given in dict(json.loads(text)).items()}
    except (ConfigurationError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{text!r} is no place to begin in a topic: give earliest, latest, a time in ISO 8601"
            ' with a zone, or offsets as {"topic/0": 120}',
        ) from error


def _offset(given: Any) -> int:  # noqa: ANN401 - of JSON
    if is_whole(given) or (isinstance(given, str) and given.isdecimal()):
        return int(given)
    raise TypeError
