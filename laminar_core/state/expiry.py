"""The column of a stored table that says when a row expires, and dropping rows that have.

An operator's only table, named ``""``, expires by ``window_start``, if it has that column. A table
with a name expires by ``_expires``, if it has that one: a null there is never reached. A value is
not a deadline but the last moment: once a snapshot says that a table has expired up to some time,
rows with that time or an earlier one are void, wherever they are stored.
"""

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.state.window_layout import TIME_TYPE, WINDOW_START

EXPIRES = "_expires"
"""Event time of the last moment of a row, as ``window_layout.TIME_TYPE`` or int64 microseconds."""


def expiry_column(name: str, schema: pa.Schema) -> str | None:
    """Return the column by which rows of this table expire; None: they stay.

    >>> expiry_column("left", pa.schema({"id": pa.int64(), "_expires": pa.int64()}))
    '_expires'
    """
    column = EXPIRES if name else WINDOW_START
    is_time = column in schema.names and schema.field(column).type in (TIME_TYPE, pa.int64())
    return column if is_time else None


def newest_expiry_us(name: str, rows: pa.Table) -> int | None:
    """Return when the last of these rows expires, in microseconds; None: unknown, or never."""
    column = expiry_column(name, rows.schema)
    if column is None or not rows.num_rows or rows.column(column).null_count:
        return None
    return int(rows.column(column).cast(pa.int64()).to_numpy().max())


def unexpired(name: str, rows: pa.Table, expired_us: int | None) -> pa.Table:
    """Leave out the rows that expire at ``expired_us`` or before; None: keep all."""
    column = expiry_column(name, rows.schema)
    if column is None or expired_us is None or not rows.num_rows:
        return rows
    times = rows.column(column)
    expired = times.cast(pa.int64()).fill_null(0).to_numpy() <= expired_us
    if times.null_count:
        expired &= call_function("is_valid", [times]).to_numpy()
    return rows.filter(pa.array(~expired)) if np.any(expired) else rows
