"""Corruptions of stored objects, drawn from a seed.

Objects are drawn by class, and then by name, so that a unique record is damaged as often as one of
a thousand segments.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from random import Random

from laminar_core.testing.disk import SimulatedDisk
from verification.forgery import forge_beyond

_BLOCK_BYTES = 64
_GARBAGE_BYTES_MAX = 40
_LIKELY = 0.5
_HOLES_BYTES = (1 << 33, 1 << 40)
_STRAY_NUMBERS = ("0000000000", "9000000001", "9999999999")

_CLASSES = {
    "manifest": r"checkpoints/\d+/manifest\.json",
    "deletion marker": r"checkpoints/\d+/deletion\.json",
    "trigger": r"checkpoints/\d+/trigger\.json",
    "in-flight": r"checkpoints/.*flight_\d+(?:_\d+)?\.buf",
    "state": r"checkpoints/\d+/operators/.*",
    "shared": r"shared/.*",
    "commit": r"commits/.*",
    "history": r"history/.*",
    "base": r"generations/\d+\.base\.json",
    "copy of a base": r"generations/\d+\.base\.copy\.json",
    "heartbeat": r"generations/\d+\.heartbeat\.json",
    "end": r"generations/\d+\.end\.json",
    "claim": r"generations/\d+\.json",
    "retention": r"retention/.*",
    "pin": r"pins/.*",
    "audit": r"audit/.*",
}


@dataclass(frozen=True, slots=True)
class Corruption:
    """The kind of corruption, and the objects."""

    kind: str
    object_class: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        """Return the corruption as one line."""
        return f"{self.kind}: {', '.join(self.keys)}"


def class_of(key: str) -> str:
    """Return the class of a job's object."""
    _, _, path = key.partition("/")
    return next((name for name, form in _CLASSES.items() if re.fullmatch(form, path)), "other")


def corrupt(
    disk: SimulatedDisk, dice: Random, preferred: AbstractSet[str] = frozenset()
) -> Corruption:
    """Damage something on ``disk``; nothing is certain to be restorable afterwards.

    ``preferred``: keys that are drawn about as often as all others together.
    """
    by_class: dict[str, list[str]] = {}
    for key in disk.list(""):
        by_class.setdefault(class_of(key), []).append(key)
    object_class = dice.choice(sorted(by_class))
    likely = [key for key in by_class[object_class] if key in preferred]
    key = dice.choice(likely if likely and dice.random() < _LIKELY else by_class[object_class])
    kind = dice.choice(list(KINDS))
    touched = KINDS[kind](disk, key, by_class[object_class], dice)
    return Corruption(kind, object_class, touched)


Damage = Callable[[SimulatedDisk, str, list[str], Random], tuple[str, ...]]
"""Harm the object at a key, maybe with the help of another one of its class; returns the keys."""


def _replacing(change: Callable[[bytes, Random], bytes]) -> Damage:
    def damage(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
        del alike
        disk.put(key, change(disk.get(key) or b"", dice))
        return (key,)

    return damage


def _flip(data: bytes, dice: Random) -> bytes:
    if not data:
        return b"\1"
    place = dice.randrange(len(data))
    flipped = data[place] ^ (1 << dice.randrange(8))
    return data[:place] + bytes([flipped]) + data[place + 1 :]


def _truncate(data: bytes, dice: Random) -> bytes:
    return data[: dice.randrange(len(data))] if data else data


def _zero_block(data: bytes, dice: Random) -> bytes:
    start = dice.randrange(len(data)) if data else 0
    block = data[start : start + _BLOCK_BYTES]
    return data[:start] + bytes(len(block)) + data[start + len(block) :]


def _append(data: bytes, dice: Random) -> bytes:
    return data + dice.choice((b"\n", b" ", b"\0", dice.randbytes(_GARBAGE_BYTES_MAX)))


def _garbage(data: bytes, dice: Random) -> bytes:
    return dice.randbytes(len(data))


def _lose(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    del alike, dice
    disk.delete(key)
    return (key,)


def _swap(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    other = dice.choice(alike)
    mine, theirs = disk.get(key) or b"", disk.get(other) or b""
    disk.put(key, theirs)
    disk.put(other, mine)
    return (key, other)


def _overwrite(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    disk.put(key, disk.get(dice.choice(alike)) or b"")
    return (key,)


def _duplicate(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    """A copy under the name of a neighbour: another checkpoint, generation or subtask."""
    del alike
    number = re.search(r"\d{10}", key)
    if number is None:
        return ()
    neighbour = max(int(number[0]) + dice.choice((-2, -1, 1, 2)), 1)
    copy = f"{key[: number.start()]}{neighbour:010}{key[number.end() :]}"
    disk.put(copy, disk.get(key) or b"")
    return (copy,)


def _special(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    """A pipe, a link or a device, which all are refused in the same way."""
    del alike, dice
    disk.make_special(key, 0)
    return (key,)


def _holes(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    """A file of holes that no process can hold."""
    del alike
    disk.make_special(key, dice.choice(_HOLES_BYTES))
    return (key,)


def _folder(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    """A folder in the place of the object, with something in it."""
    del alike
    disk.delete(key)
    disk.put(f"{key}/{dice.choice(('x', '0000000001.json', 'manifest.json'))}", b"x")
    return (key,)


def _stray(disk: SimulatedDisk, key: str, alike: list[str], dice: Random) -> tuple[str, ...]:
    """The object once more, under a name with a number that is never used."""
    del alike
    number = re.search(r"\d{10}", key)
    if number is None:
        return ()
    stray = f"{key[: number.start()]}{dice.choice(_STRAY_NUMBERS)}{key[number.end() :]}"
    disk.put(stray, disk.get(key) or b"")
    return (stray,)


KINDS: Mapping[str, Damage] = {
    "bit flipped": _replacing(_flip),
    "cut off": _replacing(_truncate),
    "emptied": _replacing(lambda data, dice: b""),  # noqa: ARG005 - one form for all
    "block of zeros": _replacing(_zero_block),
    "garbage appended": _replacing(_append),
    "garbage": _replacing(_garbage),
    "lost": _lose,
    "swapped": _swap,
    "overwritten by another": _overwrite,
    "copied to a neighbour": _duplicate,
    "forged number, sealed": _replacing(forge_beyond),
    "special file": _special,
    "file of holes": _holes,
    "folder in its place": _folder,
    "copied to a stray name": _stray,
}
