"""Real servers for tests, demos and benchmarks, started on loopback and ended with their user."""
