"""Dagster's view of the streams: assets, checks and jobs; ``definitions`` puts them together."""
