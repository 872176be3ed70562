"""The command line, ``laminar``: one module per group of commands."""

from laminar_core.cli.main import main

__all__ = ["main"]
