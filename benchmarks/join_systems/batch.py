"""One core in batch: the joins in numpy, Polars and DuckDB, over the same files.

    python -m benchmarks.join_systems.batch numpy|polars|duckdb

All rows are there at once, nothing is kept for a restart, and there is one thread. Polars and
DuckDB are those of ``make peers``, on ``PYTHONPATH``.
"""

# Polars and DuckDB are not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.join_systems.question import (
    KINDS,
    LEFT,
    RIGHT,
    WIDTH_MS,
    WINDOW_MS,
    Question,
    Total,
    Values,
    write_totals,
)
from benchmarks.topics.system import DONE

Answer = Callable[[Question], list[Total]]
_TIME_BITS = 40
"""Bits of the time in a number that holds a key and a time."""
_VIEW = "CREATE VIEW {side}_rows AS SELECT * FROM read_parquet('{files}')"
_JOINS = {
    "interval": "JOIN right_rows AS r ON l.key = r.key AND r.priced_at >= l.ordered_at "
    f"AND r.priced_at <= l.ordered_at + INTERVAL {WIDTH_MS} MILLISECONDS",
    "as-of": "ASOF JOIN right_rows AS r ON l.key = r.key AND l.ordered_at >= r.priced_at",
}
_TOTALS = (
    "SELECT kind, epoch_ms(ordered_at) // {minute} * {minute} AS minute, count(*), "
    "sum(amount)::BIGINT, sum(price)::BIGINT FROM left_rows AS l {joined} GROUP BY kind, minute"
)


def with_numpy(question: Question) -> list[Total]:
    """Sort the right side by key and time, and search in it."""
    key, kind, amount, at_ms = _columns(question.path(LEFT))
    right_key, price, priced_ms = _columns(question.path(RIGHT))
    places = (right_key << _TIME_BITS) | priced_ms
    order = np.argsort(places)
    places, price = places[order], price[order]
    wanted = (key << _TIME_BITS) | at_ms
    if question.join == "interval":
        first = np.searchsorted(places, wanted, "left")
        count = np.searchsorted(places, wanted + WIDTH_MS, "right") - first
        left = np.repeat(np.arange(len(key)), count)
        starts = np.cumsum(count) - count
        right = np.arange(len(left)) + np.repeat(first - starts, count)
    else:
        last = np.searchsorted(places, wanted, "right") - 1
        left = np.flatnonzero((last >= 0) & (places[last] >> _TIME_BITS == key))
        right = last[left]
    return summed(kind[left], at_ms[left], amount[left], price[right])


def summed(kinds: Values, at_ms: Values, amounts: Values, prices: Values) -> list[Total]:
    """Return the totals of pairs; the sums are exact, because they are below 2**53."""
    groups = at_ms // WINDOW_MS * KINDS + kinds
    counts, amount, price = (
        np.bincount(groups, weights).astype(np.int64).tolist()
        for weights in (None, amounts, prices)
    )
    return [
        (group % KINDS, group // KINDS * WINDOW_MS, counts[group], amount[group], price[group])
        for group in np.flatnonzero(counts).tolist()
    ]


def _columns(path: str) -> list[Values]:
    table = pq.read_table(path, use_threads=False).combine_chunks()
    return [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column)
        .to_numpy()
        .astype(np.int64, copy=False)
        for column in table.columns
    ]


def with_polars(question: Question) -> list[Total]:
    """Use Polars' own as-of join; the interval join is a join on the key, and a filter."""
    import polars as pl  # noqa: PLC0415 - only this engine has it

    left, right = (pl.scan_parquet(f"{question.path(side)}/*.parquet") for side in (LEFT, RIGHT))
    if question.join == "interval":
        later = pl.col("priced_at") - pl.col("ordered_at")
        until = pl.duration(milliseconds=WIDTH_MS)
        pairs = left.join(right, on="key").filter((later >= pl.duration()) & (later <= until))
    else:
        pairs = left.sort("ordered_at").join_asof(
            right.sort("priced_at"), left_on="ordered_at", right_on="priced_at", by="key"
        )
        pairs = pairs.filter(pl.col("price").is_not_null())
    minute = pl.col("ordered_at").dt.epoch("ms") // WINDOW_MS * WINDOW_MS
    found = pairs.group_by("kind", minute.alias("minute")).agg(
        pl.len().cast(pl.Int64), pl.col("amount").sum(), pl.col("price").sum()
    )
    return found.collect(engine="streaming").rows()


def with_duckdb(question: Question) -> list[Total]:
    """Use DuckDB's own as-of join; the interval join is a join with two comparisons."""
    import duckdb  # noqa: PLC0415 - only this engine has it

    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for side in (LEFT, RIGHT):
            files = f"{question.path(side)}/*.parquet"
            connection.execute(_VIEW.format(side=side, files=files))
        query = _TOTALS.format(joined=_JOINS[question.join], minute=WINDOW_MS)
        return connection.execute(query).fetchall()


ENGINES: dict[str, Answer] = {"numpy": with_numpy, "polars": with_polars, "duckdb": with_duckdb}


def main(engine: str) -> None:
    """Answer the question in each line of the input."""
    pa.set_cpu_count(1)
    for line in sys.stdin:
        question = Question.of(line)
        write_totals(question.output, ENGINES[engine](question))
        print(DONE, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main(*sys.argv[1:])
