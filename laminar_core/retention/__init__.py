"""Which checkpoints may go, and their deletion: decided, read, applied, run, configured."""
