"""Keyed state in columns, and everything that turns values into stored bytes and back."""
