"""The joins in numpy are those of a loop over all rows, so others are compared with the truth."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.join_systems.batch import with_numpy
from benchmarks.join_systems.question import (
    LEFT,
    RIGHT,
    WIDTH_MS,
    WINDOW_MS,
    Question,
    Total,
    write_rows,
)

ROWS, KEYS = 900, 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder, ROWS, KEYS)
    return folder


def rows(folder: Path, side: str) -> list[dict]:
    return pq.read_table(folder / side).to_pylist()


def total_of(pairs: list[tuple[dict, dict]]) -> list[Total]:
    counts, amounts, prices = Counter(), Counter(), Counter()
    for order, price in pairs:
        minute = round(1000 * order["ordered_at"].timestamp()) // WINDOW_MS * WINDOW_MS
        group = order["kind"], minute
        counts[group] += 1
        amounts[group] += order["amount"]
        prices[group] += price["price"]
    return sorted((*group, counts[group], amounts[group], prices[group]) for group in counts)


def milliseconds(order: dict, price: dict) -> float:
    return 1000 * (price["priced_at"] - order["ordered_at"]).total_seconds()


def test_the_interval_join_is_that_of_all_pairs(folder: Path) -> None:
    prices = rows(folder, RIGHT)
    pairs = [
        (order, price)
        for order in rows(folder, LEFT)
        for price in prices
        if order["key"] == price["key"] and 0 <= milliseconds(order, price) <= WIDTH_MS
    ]
    assert pairs
    assert sorted(with_numpy(Question("interval", str(folder), ""))) == total_of(pairs)


def test_the_as_of_join_takes_the_last_price_before(folder: Path) -> None:
    prices = rows(folder, RIGHT)
    pairs = []
    for order in rows(folder, LEFT):
        past = [
            price
            for price in prices
            if price["key"] == order["key"] and milliseconds(order, price) <= 0
        ]
        if past:
            pairs.append((order, max(past, key=lambda price: price["priced_at"])))
    assert sorted(with_numpy(Question("as-of", str(folder), ""))) == total_of(pairs)
