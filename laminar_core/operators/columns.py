"""Checks of column names that every operator makes before anything starts."""

from collections.abc import Iterable

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode


def require_columns(schema: pa.Schema, names: Iterable[str]) -> None:
    """Accept ``names`` if each names exactly one column of ``schema``.

    Raises:
        ConfigurationError: one does not (WRONG_SCHEMA); the message lists the columns there are.
    """
    for name in names:
        found = schema.names.count(name) if isinstance(name, str) else 0  # pyright: ignore[reportUnnecessaryIsInstance]
        if found != 1:
            problem = "no column" if found == 0 else f"{found} columns called"
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"{problem} {name!r}; there are: {', '.join(schema.names) or 'none'}",
            )


def require_distinct(names: Iterable[str], advice: str) -> None:
    """Accept ``names`` if no two are equal.

    Raises:
        ConfigurationError: two columns would have one name (INVALID_PIPELINE).
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE, f"two columns would be called {name!r}; {advice}"
            )
        seen.add(name)
