"""Durable objects: stores, and the checkpoints kept in them."""
