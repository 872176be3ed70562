"""Metrics of a running job for monitoring systems: Prometheus reads them, OTLP sends them."""
