"""Testing, also for users' own jobs: a cluster in one thread, and stores, sources and sinks."""
