"""Facts that sensors and checks read from a store, and how they follow it."""
