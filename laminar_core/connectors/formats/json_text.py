"""The second opinion on one JSON message: Python's own parser, slow and exact.

It decides what JSON is (RFC 8259: no NaN, no comments, UTF-8), says what is wrong with a message,
and writes a message with the fields of a schema alone. Numbers stay the text that they are, so that
a decimal keeps its digits.
"""

# Values of JSON have any shape.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

import numpy as np
import pyarrow as pa

from laminar_core.connectors.formats.messages import Defect, MessageRefusedError

DEPTH_MAX = 128
"""Levels of objects and lists that are examined; Python's parser is recursive."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_NO_BRACKETS = bytes(set(range(256)) - set(_OPENING + _CLOSING))

_PLAIN = (
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (int, float)),
    (pa.types.is_string, (str,)),
)
"""Types of columns whose values are recognised by the type that Python's parser gives them."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Object(dict[str, object]):
    """An object, and the names that it has more than once."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs) if len(self) < len(pairs) else {}
        self.repeated = frozenset(name for name, count in counts.items() if count > 1)


def read_object(message: bytes) -> dict[str, object]:
    """Read a message that is one JSON object.

    Raises:
        MessageRefusedError: it is not, or it has more than ``DEPTH_MAX`` levels.
    """
    if _depth(message) > DEPTH_MAX:
        why = (
            f"nested more than {DEPTH_MAX} levels deep, and not plain enough to be read unexamined"
        )
        raise MessageRefusedError(Defect.TOO_DEEP, why)
    try:
        value = json.loads(
            message.decode(),
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        why = f"not UTF-8: {error.reason} at byte {error.start}"
        raise MessageRefusedError(Defect.NOT_UTF8, why) from error
    except ValueError as error:
        raise MessageRefusedError(Defect.MALFORMED, f"not JSON: {error}") from error
    if not isinstance(value, _Object):
        raise MessageRefusedError(
            Defect.NOT_A_ROW, f"a row is an object, and this is {_kind(value)}"
        )
    return value


def plain_types(fields: pa.StructType) -> dict[str, frozenset[type]]:
    """Return the types that ``looks_like`` expects of values, by the name of the field.

    Dates, decimals and nested values are missing: a text or a number may be one of them.
    """
    found: dict[str, frozenset[type]] = {}
    for field in fields:
        for holds, types in _PLAIN:
            if holds(field.type):
                found[field.name] = frozenset((*types, type(None)))
    return found


def looks_like(message: bytes, types: Mapping[str, frozenset[type]]) -> bool:
    """Return whether a message seems to be an object with such fields, by a quick look."""
    try:
        fields = json.loads(message.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and all(type(fields.get(n)) in of for n, of in types.items())


def _depth(data: bytes) -> int:
    """Return how many levels are open at most; enough to know that there are not too many."""
    openings = sum(data.count(bracket) for bracket in (b"[", b"{"))
    if openings <= DEPTH_MAX:
        return openings
    brackets = np.frombuffer(_STRING.sub(b"", data).translate(None, _NO_BRACKETS), np.uint8)
    steps = np.where(np.isin(brackets, np.frombuffer(_OPENING, np.uint8)), 1, -1)
    return int(np.cumsum(steps).max(initial=0))


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case _Number():
            return "a number"
        case str():
            return "a string"
        case _:
            return "a list"


def check_fields(value: object, wanted: pa.DataType, path: str, *, refuse_unknown: bool) -> None:
    """Check the names of the fields of ``value``, and of the objects in it, against a type.

    Raises:
        MessageRefusedError: a field that counts is there twice, or one is unknown and such fields
            are refused.
    """
    if isinstance(value, _Object) and pa.types.is_struct(wanted):
        names = {field.name: field.type for field in wanted}
        for name in value:
            if name not in names and refuse_unknown:
                raise MessageRefusedError(
                    Defect.UNKNOWN_FIELD, f"the schema has no field {path}{name}"
                )
            if name in names and name in value.repeated:
                raise MessageRefusedError(
                    Defect.REPEATED_FIELD, f"the field {path}{name} is there more than once"
                )
        for name in value.keys() & names.keys():
            check_fields(value[name], names[name], f"{path}{name}.", refuse_unknown=refuse_unknown)
    elif isinstance(value, list) and pa.types.is_list(wanted):
        for item in value:
            check_fields(item, wanted.value_type, path, refuse_unknown=refuse_unknown)


def write(value: object, wanted: pa.DataType | None) -> str:
    """Write a value that :func:`read_object` read.

    With a type, objects keep only the fields that it names; without one they keep all.
    """
    match value:
        case _Number():
            return str(value)
        case dict():
            types = dict.fromkeys(value) if wanted is None else _types(wanted)
            inner = (f"{json.dumps(n)}:{write(value[n], types[n])}" for n in types if n in value)
            return "{" + ",".join(inner) + "}"
        case list():
            items = _item_type(wanted)
            return "[" + ",".join(write(item, items) for item in value) + "]"
        case _:
            return json.dumps(value)


def _types(wanted: pa.DataType) -> dict[str, pa.DataType | None]:
    return {field.name: field.type for field in wanted} if pa.types.is_struct(wanted) else {}


def _item_type(wanted: pa.DataType | None) -> pa.DataType | None:
    return wanted.value_type if wanted is not None and pa.types.is_list(wanted) else None
