"""Laminar: stateful streaming pipelines that run inside Spark jobs."""
