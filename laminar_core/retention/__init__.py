"""Retention: decide which checkpoints may be deleted, and delete them."""
