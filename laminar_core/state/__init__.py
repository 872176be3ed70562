"""Keyed state in columns: panes, rows by key, and the segments that a checkpoint writes."""
