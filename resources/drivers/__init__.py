"""Driver processes: start them, read their events, end them."""
