"""The version, written into every checkpoint."""

__version__ = "0.1.0"
