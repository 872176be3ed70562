"""Operators: batch in, batch out."""
