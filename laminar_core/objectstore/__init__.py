"""Durable objects by name: in a directory, in S3, in memory."""
