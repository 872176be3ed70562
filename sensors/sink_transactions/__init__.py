"""Warn before a sink's target gives up output that waits for its commit."""
