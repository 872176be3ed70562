"""Programs to watch: each starts a stream, does it harm, and shows that its output is exact."""
