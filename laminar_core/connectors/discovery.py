"""Discoveries for sources whose splits are all there when the job starts."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import Found, Source
from laminar_core.operators.base import JsonObject


@dataclass(frozen=True, slots=True)
class FixedList:
    """A discovery of one step: what it finds is all that the source ever reads."""

    find: Callable[[], pa.Table]
    interval_ms: int = 0

    def step(self, state: JsonObject) -> Found:
        """Return all splits; nothing is left to be found."""
        del state
        return Found(self.find(), {}, complete=True)


def fixed_list(find: Callable[[], pa.Table]) -> FixedList:
    """Return a discovery that calls ``find`` once, when a job starts for the first time.

    The table is pinned in every checkpoint: what appears later is not read.

    >>> from laminar_core.state.splits import split_table
    >>> fixed_list(lambda: split_table([{"split_id": 0}])).step({}).complete
    True
    """
    return FixedList(find)


def first_splits(source: Source) -> pa.Table:
    """Return the splits with which a fresh start of ``source`` begins."""
    return source.discovery().step({}).splits
