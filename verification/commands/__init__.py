"""``python -m verification``: one module per command."""
