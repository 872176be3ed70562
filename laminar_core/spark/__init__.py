"""Where Laminar meets Spark: its JVM, its session, its tasks, and its data sources."""
