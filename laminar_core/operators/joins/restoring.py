"""The tables of old subtasks of a join, as far as a new subtask owns their rows."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import Snapshot, StateTable, SubtaskContext
from laminar_core.operators.keyed import owned_key_groups
from laminar_core.operators.mapping import change_back_or_reset
from laminar_core.state.expiry import unexpired
from laminar_core.state.rows_layout import of_key_groups


def gathered(snapshots: Sequence[Snapshot], context: SubtaskContext) -> dict[str, list[pa.Table]]:
    """Return the stored tables by name, oldest first: rows that are owned and have not expired."""
    found: dict[str, list[pa.Table]] = {}
    for table in owned_tables(snapshots, context):
        found.setdefault(table.name, []).append(table.rows)
    return found


def owned_tables(snapshots: Sequence[Snapshot], context: SubtaskContext) -> Iterator[StateTable]:
    """Yield the stored tables one at a time: rows that are owned and have not expired."""
    owned = owned_key_groups(context)
    for snapshot in snapshots:
        for table in snapshot.tables:
            rows = unexpired(table.name, table.rows, snapshot.expired_us.get(table.name))
            yield StateTable(table.name, of_key_groups(rows, owned))


def require_same_columns(tables: Sequence[pa.Table], schema: pa.Schema, operator_id: str) -> None:
    """Accept tables of a checkpoint with the columns that the operator keeps now.

    Raises:
        IncompatibleStateError: they have others (OPERATORS_CHANGED).
    """
    for table in tables:
        if not table.schema.equals(schema):
            raise IncompatibleStateError(
                ErrorCode.OPERATORS_CHANGED,
                f"operator {operator_id!r} does not fit the checkpoint: the columns of its state "
                f"have changed from {', '.join(table.schema.names)}; "
                f"{change_back_or_reset(operator_id)}",
            )
