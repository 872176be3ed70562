"""Tables in what is told of an asset, with their columns in the order in which they are named."""

from collections.abc import Sequence

import dagster as dg

Row = dict[str, str | int | float | bool]
_TYPES = {bool: "bool", int: "int", float: "float", str: "string"}


def table_of(rows: Sequence[Row]) -> dg.TableMetadataValue:
    """All rows have the same columns; at least one row."""
    columns = [dg.TableColumn(name, _TYPES[type(value)]) for name, value in rows[0].items()]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], dg.TableSchema(columns))
