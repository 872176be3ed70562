"""Aggregate functions over Arrow columns: accumulators, sketches, and grouping."""
