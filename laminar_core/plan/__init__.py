"""What runs: vertices joined by edges."""
