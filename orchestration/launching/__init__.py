"""Start, recover and move drivers."""
