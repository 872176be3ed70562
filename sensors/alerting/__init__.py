"""Who is told when something is wrong, and how."""
