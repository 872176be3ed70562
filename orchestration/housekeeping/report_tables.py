"""Tables in the metadata of assets, with columns in the given order."""

from collections.abc import Sequence

import dagster as dg

Row = dict[str, str | int | float | bool]
_TYPES = {bool: "bool", int: "int", float: "float", str: "string"}


def table_of(rows: Sequence[Row]) -> dg.TableMetadataValue:
    """Return a table; all rows have the same columns, and there is at least one row."""
    columns = [dg.TableColumn(name, _TYPES[type(value)]) for name, value in rows[0].items()]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], dg.TableSchema(columns))
