"""The protocols as pure step functions: events in, effects out. Standard library only."""
