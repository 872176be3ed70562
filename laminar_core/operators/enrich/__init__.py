"""Columns that come from calls of other services, some time after the rows."""
