"""Commands for a running job: a client sends them through the store, the driver answers."""
