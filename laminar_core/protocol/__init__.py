"""Pure step functions of the protocols: events in, effects out. Standard library only."""
