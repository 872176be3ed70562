"""Aggregate functions for users, such as ``agg.sum("amount", name="total")``.

Their semantics are Spark's; see ``laminar_core.aggregates.accumulators``.
"""

from decimal import Decimal
from numbers import Real

import pyarrow as pa

from laminar_core.aggregates.accumulators import Aggregate
from laminar_core.aggregates.digests import COMPRESSION_MAX, COMPRESSION_MIN, Digests
from laminar_core.aggregates.hyperloglog import PRECISION_MAX, PRECISION_MIN, HyperLogLog
from laminar_core.aggregates.user_aggregates import UserAggregate, UserDefined
from laminar_core.arguments import other_argument, require_instance, require_methods
from laminar_core.errors import ConfigurationError, ErrorCode


def count(column: str | None = None, *, name: str | None = None) -> Aggregate:
    """Count the rows, or the values of ``column`` that are not null."""
    return Aggregate(
        "count", column, _named(name, "count" if column is None else f"count_{column}")
    )


def sum(column: str, *, name: str | None = None) -> Aggregate:  # noqa: A001 - reads agg.sum
    """Add up integers (result int64, an overflow is an error) or floating point (float64)."""
    return Aggregate("sum", column, _named(name, f"sum_{column}"))


def min(column: str, *, name: str | None = None) -> Aggregate:  # noqa: A001 - reads agg.min
    """Take the smallest value; NaN only where there is nothing else."""
    return Aggregate("min", column, _named(name, f"min_{column}"))


def max(column: str, *, name: str | None = None) -> Aggregate:  # noqa: A001 - reads agg.max
    """Take the largest value; NaN is larger than any number."""
    return Aggregate("max", column, _named(name, f"max_{column}"))


def avg(column: str, *, name: str | None = None) -> Aggregate:
    """Return the average of the values that are not null, as float64; of decimals as decimal."""
    return Aggregate("avg", column, _named(name, f"avg_{column}"))


def var_pop(column: str, *, name: str | None = None) -> Aggregate:
    """Return the variance of a population, as float64."""
    return Aggregate("var_pop", column, _named(name, f"var_pop_{column}"))


def var_samp(column: str, *, name: str | None = None) -> Aggregate:
    """Return the variance estimated from a sample, as float64; null for a single value."""
    return Aggregate("var_samp", column, _named(name, f"var_samp_{column}"))


def stddev_pop(column: str, *, name: str | None = None) -> Aggregate:
    """Return the standard deviation of a population, as float64."""
    return Aggregate("stddev_pop", column, _named(name, f"stddev_pop_{column}"))


def stddev_samp(column: str, *, name: str | None = None) -> Aggregate:
    """Return the standard deviation estimated from a sample, as float64.

    Null for a single value.
    """
    return Aggregate("stddev_samp", column, _named(name, f"stddev_samp_{column}"))


def first(column: str, *, by: str, name: str | None = None) -> Aggregate:
    """Take the value of the row with the smallest ``by``, most often event time.

    Rows without ``by`` do not count; of several at the same place the smallest value is taken.
    """
    return Aggregate("first", column, _named(name, f"first_{column}"), (by,))


def last(column: str, *, by: str, name: str | None = None) -> Aggregate:
    """Take the value of the row with the largest ``by``; of several the largest value."""
    return Aggregate("last", column, _named(name, f"last_{column}"), (by,))


def count_distinct(column: str, *, name: str | None = None) -> Aggregate:
    """Count the distinct values, exactly; all of them are kept as state."""
    return Aggregate("count_distinct", column, _named(name, f"count_distinct_{column}"))


def approx_count_distinct(
    column: str, *, precision: int = 12, name: str | None = None
) -> Aggregate:
    """Estimate the number of distinct values in at most ``4 * 2**precision`` bytes per group.

    The relative standard error is ``1.04 / sqrt(2**precision)``: 1.6 % for 12.

    Raises:
        ConfigurationError: the precision is not in 12..16 (INVALID_OPTION).
    """
    _within("precision", precision, PRECISION_MIN, PRECISION_MAX)
    name = _named(name, f"approx_count_distinct_{column}")
    return Aggregate("approx_count_distinct", column, name, state=HyperLogLog(precision))


def percentile(column: str, fraction: float, *, name: str | None = None) -> Aggregate:
    """Interpolate the value at ``fraction`` (0 to 1), exactly; the state is all distinct values.

    Raises:
        ConfigurationError: the fraction is not in [0, 1] (INVALID_OPTION).
    """
    _within("the fraction of a percentile", fraction, 0, 1)
    name = _named(name, f"percentile_{column}")
    return Aggregate("percentile", column, name, fraction=float(fraction))


def approx_percentile(
    column: str, fraction: float, *, compression: int = 500, name: str | None = None
) -> Aggregate:
    """Estimate the value at ``fraction`` (0 to 1) by a t-digest of some kilobytes.

    The rank of the answer is within ``5 / compression`` of the fraction: 0.01 for 500.

    Raises:
        ConfigurationError: fraction or compression is out of range (INVALID_OPTION).
    """
    _within("the fraction of a percentile", fraction, 0, 1)
    _within("compression", compression, COMPRESSION_MIN, COMPRESSION_MAX)
    name, state = _named(name, f"approx_percentile_{column}"), Digests(compression)
    return Aggregate("approx_percentile", column, name, fraction=float(fraction), state=state)


def user(udaf: UserAggregate, *columns: str, name: str | None = None) -> Aggregate:
    """Aggregate ``columns`` by what you wrote; see ``laminar_core.aggregates.user_aggregates``.

    Raises:
        ConfigurationError: there is no column, its name is no identifier, or a type or a method is
            missing (INVALID_OPTION).
    """
    wanted = "agg.user takes an object of a class with a name and init()"
    require_methods(udaf, ("name",), wanted)
    require_instance(udaf.name, str, "the name of an aggregate must be text")
    _require(bool(columns), f"aggregate {udaf.name!r} needs at least one column")
    _require(udaf.name.isidentifier(), f"{udaf.name!r} is not a name: use letters, digits and _")
    for what in ("state_type", "result_type"):
        _require(
            isinstance(getattr(udaf, what, None), pa.DataType),
            f"{what} of aggregate {udaf.name!r} is no type of pyarrow, such as pa.int64()",
        )
    for method in ("init", "accumulate", "merge", "finish"):
        _require(callable(getattr(udaf, method, None)), f"aggregate {udaf.name!r} needs {method}()")
    state = UserDefined.of(udaf)
    return Aggregate("user", columns[0], _named(name, udaf.name), columns[1:], state=state)


def _named(name: str | None, otherwise: str) -> str:
    require_instance(name, str | None, "the name of a result must be text")
    return name or otherwise


def _within(what: str, number: float, least: int, most: int) -> None:
    if not isinstance(number, Real | Decimal) or not least <= number <= most:
        raise other_argument(number, f"{what} is {least} to {most}")


def _require(is_right: bool, problem: str) -> None:  # noqa: FBT001 - a condition, said at each call
    if not is_right:
        raise ConfigurationError(ErrorCode.INVALID_OPTION, problem)
