"""What the source is about to forget, and which checkpoints need it."""
