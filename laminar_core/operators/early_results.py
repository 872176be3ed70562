"""Early results: when they are due, and how those of sessions are taken back.

The early result of a window is replaced by key. For a session there is no such key: when it grows
it ends later, and two that touch become one. So a session keeps its emitted results in a list
beside its accumulators, and lists are joined when sessions are merged. When a session is emitted
again, the results in its list are taken back, and the new one takes their place.

Equal results are not emitted again, even after a restore. So the weights of all emitted rows add up
to the sessions as they were when event time last passed the interval.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.row_groups import as_array
from laminar_core.operators.updating_totals import with_weight
from laminar_core.operators.weights import unweighted_schema
from laminar_core.state.difference import values_differ
from laminar_core.state.session_state import EMITTED


def are_due(early_us: int | None, before_us: int | None, now_us: int | None) -> bool:
    """Return whether the watermark has passed a multiple of ``early_us`` on its way to now.

    ``early_us`` None: there are no early results; ``before_us`` None: no watermark was known.
    """
    if early_us is None or now_us is None:
        return False
    return before_us is None or before_us // early_us < now_us // early_us


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Sessions whose results are emitted, and what changes by that.

    Shapes: ``emitted`` and ``differs`` have an entry for each session.
    """

    emitted: pa.Array
    """The new lists of emitted results: each has one."""
    differs: npt.NDArray[np.bool_]
    """Whether a session has another list than before."""
    rows: Iterator[pa.RecordBatch]
    """The results that go, and those that come."""


class EmittedResults:
    """Compares results of sessions with those that were emitted of them.

    ``schema``: the columns of the output, the keys first and ``_weight`` last.
    """

    def __init__(self, keys: Sequence[str], schema: pa.Schema) -> None:
        self._schema = schema
        self._keys = list(keys)
        self._results = list(unweighted_schema(schema))[len(keys) :]

    @property
    def field(self) -> pa.Field:
        """The column of state: a list of results, without the keys."""
        return pa.field(EMITTED, pa.list_(pa.struct(self._results)))

    def before_any(self, sessions: pa.Table) -> pa.Table:
        """Append the column to new sessions, with empty lists."""
        offsets = pa.array(np.zeros(sessions.num_rows + 1, np.int32))
        nothing = pa.array([], self.field.type.value_type)
        return sessions.append_column(self.field, pa.ListArray.from_arrays(offsets, nothing))

    def change(self, emitted: pa.ChunkedArray, results: pa.Table) -> Change:
        """Compare ``emitted``, the lists of sessions, with what their results are now."""
        lists = as_array(emitted)
        lengths = call_function("list_value_length", [lists]).to_numpy()
        of_session = call_function("list_parent_indices", [lists])
        before = self._rows(results, of_session, call_function("list_flatten", [lists]))
        differs = lengths != 1
        once = pa.array(~differs[of_session.to_numpy()])
        now = results.take(pa.array(np.flatnonzero(~differs)))
        is_other = np.zeros(now.num_rows, np.bool_)
        for name in (field.name for field in self._results):
            is_other |= values_differ(before.column(name).filter(once), now.column(name))
        differs[np.flatnonzero(~differs)[is_other]] = True
        rows = self._changes(before, of_session, results, differs)
        return Change(self._lists(results), differs, rows)

    def _changes(
        self,
        before: pa.Table,
        of_session: pa.Array,
        results: pa.Table,
        differs: npt.NDArray[np.bool_],
    ) -> Iterator[pa.RecordBatch]:
        yield from with_weight(before, differs[of_session.to_numpy()], -1, self._schema)
        yield from with_weight(results, differs, 1, self._schema)

    def _rows(self, results: pa.Table, of_session: pa.Array, emitted: pa.Array) -> pa.Table:
        """Return emitted results as rows, with the keys of their sessions."""
        columns = [results.column(key).take(of_session) for key in self._keys]
        columns += [pa.chunked_array([part]) for part in emitted.flatten()]
        return pa.Table.from_arrays(columns, schema=results.schema)

    def _lists(self, results: pa.Table) -> pa.Array:
        """Return a list of one result for each session."""
        parts = [as_array(results.column(field.name)) for field in self._results]
        rows = pa.StructArray.from_arrays(parts, fields=self._results)
        offsets = pa.array(np.arange(results.num_rows + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, rows)
