"""The aggregates that users write, as ``agg.sum("amount", name="total")``.

Their semantics, Spark's, are those of ``laminar_core.state.accumulators``.
"""

from laminar_core.state.accumulators import Aggregate


def count(column: str | None = None, *, name: str | None = None) -> Aggregate:
    """Count the rows, or the values of ``column`` that are not null."""
    return Aggregate("count", column, name or (f"count_{column}" if column else "count"))


def sum(column: str, *, name: str | None = None) -> Aggregate:  # noqa: A001 - reads agg.sum
    """Add up integers (result int64, an overflow is an error) or floating point (float64)."""
    return Aggregate("sum", column, name or f"sum_{column}")


def min(column: str, *, name: str | None = None) -> Aggregate:  # noqa: A001 - reads agg.min
    """Take the smallest value; NaN only where there is nothing else."""
    return Aggregate("min", column, name or f"min_{column}")


def max(column: str, *, name: str | None = None) -> Aggregate:  # noqa: A001 - reads agg.max
    """Take the largest value; NaN is larger than any number."""
    return Aggregate("max", column, name or f"max_{column}")


def avg(column: str, *, name: str | None = None) -> Aggregate:
    """Average the values that are not null, as float64."""
    return Aggregate("avg", column, name or f"avg_{column}")
