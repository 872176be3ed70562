"""For your own tests, too: a cluster in one thread, and stores, sources and sinks for it."""
