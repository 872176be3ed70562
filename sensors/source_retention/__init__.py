"""Warn before the source drops rows that checkpoints need."""
