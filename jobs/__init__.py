"""Spark programs that users run and copy."""
