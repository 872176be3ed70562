"""Dagster sensors: they look at the checkpoint store and say what they saw."""
