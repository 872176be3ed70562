"""Lookups: each row with what a table, or a stream of versions, has for its key."""
