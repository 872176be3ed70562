"""The keys of each pane that got rows since results were last emitted, as hashes.

Only these keys have other results than before. Two keys can share a hash: then a key is taken for
changed that is not, and its result is emitted once more as it was, which does no harm.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import as_array
from laminar_core.codec.stable_hash import UInt64Array, hash_columns

_HASHES_MIN = 65_536
"""Fewer are not looked through for those that are there twice."""


class ChangedKeys:
    """Grows with the number of changed keys, not with the number of rows."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._hashes: dict[int, list[UInt64Array]] = {}
        self._since: dict[int, int] = {}
        """By pane, the number of hashes since duplicates were last removed."""

    def add(self, pane_us: int, rows: pa.Table) -> None:
        """Note that these rows came for a pane."""
        self.note(pane_us, self.hashes_of(rows))

    def note(self, pane_us: int, changed: UInt64Array) -> None:
        """Note that rows with these hashes of keys came for a pane."""
        hashes = self._hashes.setdefault(pane_us, [])
        hashes.append(np.unique(changed))
        since = self._since.get(pane_us, 0) + len(hashes[-1])
        if since > max(_HASHES_MIN, 2 * len(hashes[0])):
            hashes[:] = [np.unique(np.concatenate(hashes))]
            since = 0
        self._since[pane_us] = since

    def take(self) -> dict[int, UInt64Array]:
        """Return the hashes of changed keys by pane, and begin anew."""
        taken, self._hashes, self._since = self._hashes, {}, {}
        return {pane_us: np.concatenate(hashes) for pane_us, hashes in taken.items()}

    def hashes_of(self, rows: pa.Table) -> UInt64Array:
        """Return the hash of each row's key."""
        return hash_columns([as_array(rows.column(key)) for key in self._keys], rows.num_rows)
