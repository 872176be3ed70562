"""``python -m laminar_core.cli``, for processes that have no ``laminar`` on their PATH."""

from laminar_core.cli.main import main

main()
