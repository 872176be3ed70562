"""Find files that keep coming: each once and whole, in an order, with a memory that is bounded.

A step is pure: what is remembered and what is listed go in, and what is new goes out with what is
remembered from then on. A restart goes on with an older memory, and finds again what came since.

A file is new if it is listed, looks the same as in the step before (on a store of objects it is
whole at once), and is not remembered. Of each file that was found, 16 bytes are remembered: digests
of its name and of its version, and when it was modified. With a *horizon* older ones are
forgotten: a file that was modified before it is never new. If it came to its place after the
horizon all the same, it is *late*, which is reported.

In the other way, *ordered*, names only grow, and the memory is the last one.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from laminar_core.connectors.files.places import FileStat
from laminar_core.operators.base import JsonObject

_SEEN = np.dtype([("name", "<u8"), ("version", "<u4"), ("modified_s", "<u4")])
_SECOND_US = 1_000_000
_NEVER_S = -1

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Rules:
    """How files are found."""

    whole_at_once: bool = False
    """A file counts when it is listed; else once it looked the same in two steps."""
    ordered: bool = False
    """Names only grow: what is not behind the last one is not new."""
    max_age_us: int | None = None
    """How far behind the newest file the horizon is; None: nothing is forgotten."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The discovery's memory between two steps; it is part of every checkpoint."""

    seen: Array = field(default_factory=lambda: np.empty(0, _SEEN))
    """One entry for each file that was found, sorted by the digest of its name."""
    horizon_s: int = _NEVER_S
    newest_s: int = _NEVER_S
    waiting: tuple[tuple[str, str], ...] = ()
    """Name and version of files that are new if they look the same in the next step."""
    last: str | None = None
    """The last name, if names only grow."""
    next_id: int = 0

    @classmethod
    def of(cls, state: JsonObject) -> Self:
        """Return the memory in a state that ``as_state`` returned; ``{}`` is an empty one."""
        known: dict[str, Any] = dict(state)
        return cls(
            np.frombuffer(base64.b64decode(known.get("seen", "")), _SEEN),
            known.get("horizon_s", _NEVER_S),
            known.get("newest_s", _NEVER_S),
            tuple(sorted(known.get("waiting", {}).items())),
            known.get("last"),
            known.get("next_id", 0),
        )

    def as_state(self) -> JsonObject:
        """Return the memory as JSON."""
        return {
            "seen": base64.b64encode(self.seen.tobytes()).decode(),
            "horizon_s": self.horizon_s,
            "newest_s": self.newest_s,
            "waiting": dict(self.waiting),
            "last": self.last,
            "next_id": self.next_id,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step."""

    new: tuple[FileStat, ...]
    """In reading order: by the time of modification and the name, or by name if names grow."""
    memory: Memory
    changed: tuple[str, ...] = ()
    """Files that were found before and are others now. They are not read again."""
    late: tuple[str, ...] = ()
    """Files that came with a time before the horizon, and are not read."""


def step(memory: Memory, listed: Iterable[FileStat], rules: Rules) -> Step:
    """Return which of the listed files are new."""
    files = sorted(listed, key=lambda file: file.name)
    return _ordered(memory, files, rules) if rules.ordered else _remembered(memory, files, rules)


def _ordered(memory: Memory, files: Sequence[FileStat], rules: Rules) -> Step:
    """Find files behind the last name; one that is not settled holds back those behind it."""
    waiting = dict(memory.waiting)
    new: list[FileStat] = []
    last = memory.last
    behind = [file for file in files if last is None or file.name > last]
    for file in behind:
        if not rules.whole_at_once and waiting.get(file.name) != file.version:
            break
        new.append(file)
    rest = () if rules.whole_at_once else behind[len(new) :]
    return Step(
        tuple(new),
        Memory(
            waiting=tuple((file.name, file.version) for file in rest),
            last=new[-1].name if new else last,
            next_id=memory.next_id + len(new),
        ),
    )


def _remembered(memory: Memory, files: Sequence[FileStat], rules: Rules) -> Step:
    waiting, still_waiting = dict(memory.waiting), list[tuple[str, str]]()
    new: list[FileStat] = []
    changed: list[str] = []
    late: list[str] = []
    for file, known in zip(files, _versions(memory.seen, files), strict=True):
        version = _digest(file.version, 4)
        if known is not None:
            changed += [file.name] if known != version else []
        elif _seconds(file.modified_us) < memory.horizon_s:
            late += [file.name] if _seconds(file.arrived_us) >= memory.horizon_s else []
        elif rules.whole_at_once or waiting.get(file.name) == file.version:
            new.append(file)
        else:
            still_waiting.append((file.name, file.version))
    new.sort(key=lambda file: (file.modified_us, file.name))
    after = _aged(memory, new, rules)
    after = Memory(
        after.seen,
        after.horizon_s,
        after.newest_s,
        tuple(still_waiting),
        None,
        memory.next_id + len(new),
    )
    return Step(tuple(new), after, tuple(changed), tuple(late))


def _versions(seen: Array, files: Sequence[FileStat]) -> list[int | None]:
    """Return, for each file, the digest of the version that was found, or None."""
    names = np.fromiter((_digest(f.name, 8) for f in files), np.uint64, len(files))
    places = np.searchsorted(seen["name"], names)
    inside = np.minimum(places, max(len(seen) - 1, 0))
    known = seen["name"][inside] == names if len(seen) else np.zeros(len(files), bool)
    versions = seen["version"][inside] if len(seen) else np.zeros(len(files), np.uint32)
    return [int(v) if k else None for k, v in zip(known, versions, strict=True)]


def _aged(memory: Memory, new: Sequence[FileStat], rules: Rules) -> Memory:
    """Remember the new files, and forget those before the horizon."""
    added = np.array(
        [(_digest(f.name, 8), _digest(f.version, 4), _seconds(f.modified_us)) for f in new], _SEEN
    )
    seen = np.concatenate([memory.seen, added])
    newest_s = max([memory.newest_s, *(_seconds(file.modified_us) for file in new)])
    horizon_s = memory.horizon_s
    if rules.max_age_us is not None and newest_s >= 0:
        horizon_s = max(horizon_s, newest_s - rules.max_age_us // _SECOND_US)
        seen = seen[seen["modified_s"] >= max(horizon_s, 0)]
    return Memory(seen[np.argsort(seen["name"], kind="stable")], horizon_s, newest_s)


def _seconds(time_us: int) -> int:
    return min(max(time_us // _SECOND_US, 0), 2**32 - 1)


def _digest(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(errors="surrogateescape"), digest_size=size).digest())
