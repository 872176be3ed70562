"""Joins of two streams by key and event time."""
