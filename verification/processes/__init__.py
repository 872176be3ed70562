"""A job in real processes without Spark: a driver, and one process for each worker."""
