"""Connectors: replayable sources and two-phase-commit sinks."""
