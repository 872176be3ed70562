"""Forged records with valid seals, such as any writer of a store can make.

A digest detects decay, not intent, because anybody can compute it. So a reader has to survive every
record whose digest is right.
"""

# It forges JSON of any shape.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.seal import seal, unseal

_BEYOND: tuple[int, ...] = (2**63, 10**30, -(10**30), 10**400)
"""No field of any record takes these."""
_NUMBERS: tuple[int, ...] = (
    *(0, 1, -1, 2, 2**15, 2**15 + 1, 2**31, 2**32, 10**9, 9_000_000_000, 9_000_000_001),
    *(10**10 - 2, 10**10 - 1, 10**10, 10**12, 2**53 + 1, 253_402_300_799_999, 2**63 - 1),
    *_BEYOND,
)
_FLOATS = (0.0, -1.5, 1e15, 1e308, -1e308, 5e-324)
_LONG = 70_000
_TEXTS = (
    *("", "x" * 129, "x" * 300, "x" * _LONG, "../../../etc/passwd", "/dev/zero", "a//b", ".."),
    *("line\nline", "\x1b[2J", "\ud7ff", "é", "0", "None", "a" * 64, "0" * 64, "s3://b/p"),
)
_DEEP_LEVELS = (3, 60, 70, 300)

Place = tuple[Any, Any]
"""A list or an object, and the index or the name in it."""


def forge(data: bytes, dice: Random) -> bytes:
    """Change a JSON record, and seal it again if it was sealed.

    Other data comes back truncated.
    """
    return _changed(data, dice, _CHANGES)


def forge_beyond(data: bytes, dice: Random) -> bytes:
    """Put a number into a record that no reader accepts, and seal it again.

    What is no record, or has no number, comes back with a byte more.
    """
    return _changed(data, dice, (_number_beyond,))


Change = Callable[[dict[str, Any], list[Place], Random], bool]
"""Change a record at one of the places; False: there is nothing to be changed in this way."""


def _changed(data: bytes, dice: Random, changes: tuple[Change, ...]) -> bytes:
    try:
        plain = unseal(data)
        record = json.loads(plain)
    except (CorruptCheckpointError, ValueError):
        return data + b"\0" if len(changes) == 1 else data[: len(data) // 2]
    if not isinstance(record, dict):
        return data + b"\0"
    if not dice.choice(changes)(record, list(_places(record)), dice):
        return data + b"\0"
    forged = f"{json.dumps(record, indent=1)}\n".encode()
    return seal(forged) if plain != data and forged.endswith(b"\n}\n") else forged


def _places(value: Any) -> Iterator[Place]:  # noqa: ANN401 - any JSON
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _numbers(places: list[Place]) -> list[Place]:
    return [(holder, key) for holder, key in places if type(holder[key]) is int]


def _number_beyond(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    numbers = _numbers(places)
    if numbers:
        holder, key = dice.choice(numbers)
        holder[key] = dice.choice(_BEYOND)
    return bool(numbers)


def _other_number(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    numbers = _numbers(places)
    if numbers:
        holder, key = dice.choice(numbers)
        holder[key] = dice.choice(_NUMBERS)
    return bool(numbers)


def _other_value(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    holder, key = dice.choice(places)
    choices = (*_NUMBERS, *_FLOATS, *_TEXTS, None, True, False, [], {}, [[]], {"": 0})
    holder[key] = dice.choice(choices)
    return True


def _other_text(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    texts = [(holder, key) for holder, key in places if isinstance(holder[key], str)]
    if texts:
        holder, key = dice.choice(texts)
        holder[key] = dice.choice(_TEXTS)
    return bool(texts)


def _value_of_another(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    (holder, key), (other, other_key) = dice.choice(places), dice.choice(places)
    holder[key] = json.loads(json.dumps(other[other_key]))
    return True


def _without(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    holder, key = dice.choice(places)
    del holder[key]
    return True


def _deep(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    holder, key = dice.choice(places)
    value: Any = 0
    for _ in range(dice.choice(_DEEP_LEVELS)):
        value = [value] if dice.random() < 0.5 else {"a": value}  # noqa: PLR2004 - a coin
    holder[key] = value
    return True


def _many(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    del record
    lists = [holder[key] for holder, key in places if isinstance(holder[key], list)]
    filled = [each for each in lists if each]
    if filled:
        chosen = dice.choice(filled)
        chosen.extend([chosen[0]] * dice.choice((1, 1_000, 20_000)))
    return bool(filled)


def _new_member(record: dict[str, Any], places: list[Place], dice: Random) -> bool:
    objects = [record, *(h[k] for h, k in places if isinstance(h[k], dict))]
    dice.choice(objects)[dice.choice(_TEXTS)] = dice.choice((*_NUMBERS, *_TEXTS))
    return True


_CHANGES: tuple[Change, ...] = (
    _other_number,
    _other_number,
    _other_value,
    _other_text,
    _value_of_another,
    _without,
    _deep,
    _many,
    _new_member,
)
