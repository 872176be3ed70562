"""Integration with Spark: its JVM, its session, its tasks, and its data source API."""
