"""``make demo``: payments per merchant, killed three times, compared with a Spark batch query."""
