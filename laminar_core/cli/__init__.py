"""The command line, ``laminar``: one module per group of commands."""

from laminar_core.host.supported import refuse_unsupported

refuse_unsupported()

from laminar_core.cli.main import main  # noqa: E402 - what it imports is not there everywhere

__all__ = ["main"]
