"""Save the state of live objects as a value, and load it again.

The machines under test are objects with queues. Exploration needs them as values that can be
compared, and restored to try something else. ``Memento`` finds every mutable object below a root
once, and from then on saves and loads their attributes. It knows no class by name, so later
attributes of a task become part of its state automatically.

Attributes that hold other such objects, functions, locks or arrays are its structure: they are left
alone, because every object built by the same function has the same.
"""

# It copies objects of any kind.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

import inspect
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from laminar_core.protocol.types import Batch
from verification.explorer.records import Record, batch_of, record_of

_ATOMS = (int, float, str, bytes, type(None), Enum, frozenset, BaseModel, Record)
_CONTAINERS = (list, deque, dict, set, tuple)
_PLAIN = {int, float, str, bool, type(None), Record}
_COUNTERS = {
    "_barriers_reached",
    "_first_barrier",
    "rows_before",
    "rows_since_start",
    "rows_written",
    "_unaligned",
    "_switched",
    "_total_bytes",
}
"""Attributes that only ever count for a report: states that differ in them are the same."""

Saved = tuple[Hashable, ...]


class _Of(tuple[Any, ...]):
    """A container as a value; its subclass identifies the type."""

    __slots__ = ()


class _List(_Of):
    __slots__ = ()


class _Deque(_Of):
    __slots__ = ()


class _Dict(_Of):
    __slots__ = ()


class _Set(_Of):
    __slots__ = ()


class _Batch(_Of):
    __slots__ = ()


class Memento:
    """State of everything below ``root``."""

    def __init__(self, root: object) -> None:
        self._slots = [
            (node, name)
            for node in _mutable_objects(root)
            for name, value in _attributes(node)
            if name not in _COUNTERS and _is_state(value)
        ]

    def save(self) -> Saved:
        """Return the current state; equal states are equal values."""
        return tuple(_freeze(getattr(node, name)) for node, name in self._slots)

    def load(self, saved: Saved) -> None:
        """Restore a state, which must come from objects of the same structure."""
        assert len(saved) == len(self._slots), "the structure is another one"
        for (node, name), value in zip(self._slots, saved, strict=True):
            setattr(node, name, _thaw(value))

    def describe(self) -> list[str]:
        """Return the attributes in the state, by class and name."""
        return [f"{type(node).__name__}.{name}" for node, name in self._slots]


def _mutable_objects(root: object) -> Iterator[object]:
    seen: set[int] = set()
    waiting: deque[object] = deque([root])
    while waiting:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if _is_mutable(value):
            yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, _CONTAINERS):
            waiting.extend(value)
        elif _is_ours(value):
            waiting.extend(inner for _, inner in _attributes(value))


def _is_ours(value: object) -> bool:
    if isinstance(value, (Enum, type, BaseModel)):
        return False
    if is_dataclass(value):
        return True
    return any(
        kind.__module__.partition(".")[0] in ("laminar_core", "verification")
        for kind in type(value).__mro__
    )


def _is_mutable(value: object) -> bool:
    if not _is_ours(value) or isinstance(value, tuple):
        return False
    parameters = getattr(value, "__dataclass_params__", None)
    return parameters is None or not parameters.frozen


def _attributes(node: object) -> Iterator[tuple[str, object]]:
    names = [*getattr(node, "__dict__", ())]
    for base in type(node).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
        names += inspect.get_annotations(base)  # Attributes that have a default.
    for name in dict.fromkeys(names):
        if hasattr(node, name):
            yield name, getattr(node, name)


def _is_state(value: object) -> bool:
    """Can it change? Containers of objects are structure, containers of values are not."""
    if isinstance(value, dict):
        return all(map(_is_state, value.values()))
    if isinstance(value, _CONTAINERS):
        return all(map(_is_state, value))
    if isinstance(value, (*_ATOMS, pa.RecordBatch)):
        return True
    if _is_ours(value) and not _is_mutable(value):
        return all(_is_state(inner) for _, inner in _attributes(value))
    return False


def _freeze(value: Any) -> Hashable:  # noqa: ANN401 - whatever an attribute holds
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return tuple(map(_freeze, value))
    if kind is deque:
        return _Deque(map(_freeze, value))
    if kind is list:
        return _List(map(_freeze, value))
    if kind is dict:
        return _Dict((key, _freeze(inner)) for key, inner in value.items())
    if kind is set:
        return _Set(sorted(value, key=repr))
    if kind is Batch:
        return _Batch((True, record_of(value.data)))
    if kind is pa.RecordBatch:
        return _Batch((False, record_of(value)))
    assert not _is_mutable(value), f"an attribute became a {kind.__name__}: its state is lost"
    return value


def _thaw(value: Any) -> Any:  # noqa: ANN401 - whatever an attribute holds
    kind = type(value)
    if kind is tuple:
        return tuple(map(_thaw, value))
    if kind is _Deque:
        return deque(map(_thaw, value))
    if kind is _List:
        return list(map(_thaw, value))
    if kind is _Dict:
        return {key: _thaw(inner) for key, inner in value}
    if kind is _Set:
        return set(value)
    if kind is _Batch:
        in_element, record = value
        return Batch(batch_of(record)) if in_element else batch_of(record)
    return value
