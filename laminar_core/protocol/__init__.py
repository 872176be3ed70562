"""The protocol, pure: events in, effects or decisions out. Standard library only."""
