"""Demonstrations: each starts a stream, disturbs it, and shows that its output is exact."""
