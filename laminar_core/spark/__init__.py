"""Integration with Spark: its JVM, its session, its tasks, and its data source API."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laminar_core.spark.session import open_session
    from laminar_core.spark.sessions import OwnSession

__all__ = ["OwnSession", "open_session"]


def __getattr__(name: str) -> object:
    """Import what is public when it is first used: who looks for Java need not load PySpark."""
    if name == "open_session":
        from laminar_core.spark.session import open_session  # noqa: PLC0415

        return open_session
    if name == "OwnSession":
        from laminar_core.spark.sessions import OwnSession  # noqa: PLC0415

        return OwnSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
