"""What aggregates keep while rows still come: accumulators, sketches, and grouping."""
