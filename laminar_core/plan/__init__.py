"""The physical plan: vertices joined by edges."""
