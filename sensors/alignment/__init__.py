"""When a running job is forced into unaligned checkpoints, and when it is let go."""
