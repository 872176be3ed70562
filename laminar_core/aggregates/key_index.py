"""A hash table from keys to numbers, for whole columns of keys at a time.

Open addressing with linear probing: each step looks at one slot for all keys that are not found
yet. So a batch takes as many steps as its unluckiest key, and no step is a loop over keys. The
table stores hashes only. The caller compares keys with equal hashes, all of them at once, because
the stored keys are part of the rows.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.stable_hash import UInt64Array

MISSING = -1

AreEqual = Callable[[Integers, Integers], npt.NDArray[np.bool_]]
"""Compares positions in the batch with numbers of stored keys; returns which pairs are equal."""

_SLOTS_MIN = 1_024
_LOAD_MAX = 2  # At least twice as many slots as keys.


class KeyIndex:
    """Keys are numbered from 0 in the order in which they were added, and never leave."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)
        self._count = 0
        self._slots = np.full(_SLOTS_MIN, MISSING)

    def __len__(self) -> int:
        return self._count

    @property
    def hashes(self) -> UInt64Array:
        """The hash of each key, by its number; what is added later does not change it."""
        return self._hashes[: self._count]

    def find(self, hashes: UInt64Array, are_equal: AreEqual) -> Integers:
        """Return the number of each key, or -1."""
        found = np.full(len(hashes), MISSING)
        slots = self._first_slots(hashes)
        pending = np.arange(len(hashes))
        while len(pending):  # Most often once: few keys share a hash of 64 bits.
            slots = self._probe(slots, hashes[pending])
            numbers = self._slots[slots]
            used = numbers != MISSING
            pending, numbers, slots = pending[used], numbers[used], slots[used]
            equal = are_equal(pending, numbers)
            found[pending[equal]] = numbers[equal]
            pending, slots = pending[~equal], self._next(slots[~equal])
        return found

    def _probe(self, slots: Integers, hashes: UInt64Array) -> Integers:
        """From each slot on, the first one that is free or has a key of this hash."""
        slots = slots.copy()
        moving = np.arange(len(slots))
        while len(moving):
            numbers = self._slots[slots[moving]]
            passed = numbers != MISSING
            passed[passed] = self._hashes[numbers[passed]] != hashes[moving[passed]]
            moving = moving[passed]
            slots[moving] = self._next(slots[moving])
        return slots

    def add(self, hashes: UInt64Array) -> Integers:
        """Add keys that are new and distinct; return their numbers."""
        numbers = np.arange(self._count, self._count + len(hashes))
        if len(self._hashes) < self._count + len(hashes):
            grown = np.empty(max(2 * len(self._hashes), self._count + len(hashes)), np.uint64)
            grown[: self._count] = self._hashes[: self._count]
            self._hashes = grown
        self._hashes[numbers] = hashes
        self._count += len(hashes)
        if self._count * _LOAD_MAX > len(self._slots):
            slot_count = 1 << (self._count * 2 * _LOAD_MAX - 1).bit_length()
            self._slots = np.full(slot_count, MISSING)
            self._place(np.arange(self._count), self._hashes[: self._count])
        else:
            self._place(numbers, hashes)
        return numbers

    def _place(self, numbers: Integers, hashes: UInt64Array) -> None:
        slots = self._first_slots(hashes)
        while len(numbers):
            free = self._slots[slots] == MISSING
            self._slots[slots[free]] = numbers[free]  # Of several for one slot, one remains.
            homeless = self._slots[slots] != numbers
            numbers, slots = numbers[homeless], self._next(slots[homeless])

    def _first_slots(self, hashes: UInt64Array) -> Integers:
        # The upper bits chose the key group, so they are much alike in one subtask.
        return (hashes & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _next(self, slots: Integers) -> Integers:
        return (slots + 1) & (len(self._slots) - 1)
