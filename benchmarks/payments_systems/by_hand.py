"""The ceiling: numpy and pyarrow, written by hand for this question, one process per worker.

    python -m benchmarks.payments_systems.by_hand WORKERS

Each process reads every n-th row group into arrays that have a place for each merchant, and the
first one merges what all of them found. Nothing is exchanged on the way, nothing is kept for a
restart, and a merchant with a number is found by it. WORKERS is the highest number of processes.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.payments_systems.question import CODEC, CODEC_LEVEL, WINDOW_US, Question
from benchmarks.topics.system import DONE

Values = npt.NDArray[np.int64]
_READ = ["merchant", "amount_cents", "paid_at"]
_LARGEST = np.iinfo(np.int64).max
_PLACES_MIN = 1 << 14


class Totals(NamedTuple):
    """The totals of a window: for each place a merchant; ``places`` are those that have any."""

    places: Values
    counts: Values
    sums: Values
    lowest: Values
    highest: Values


class Window:
    """Totals of a window while rows come."""

    def __init__(self, places: int) -> None:
        self.counts = np.zeros(places, np.int64)
        self.sums = np.zeros(places, np.int64)
        self.lowest = np.full(places, _LARGEST)
        self.highest = np.full(places, -_LARGEST)

    def take(self, places: Values, amounts: Values) -> None:
        """Add rows."""
        self.grow(int(places.max()) + 1)
        np.add.at(self.counts, places, 1)
        np.add.at(self.sums, places, amounts)
        np.minimum.at(self.lowest, places, amounts)
        np.maximum.at(self.highest, places, amounts)

    def merge(self, totals: Totals, place_of: Values | None) -> None:
        """Add what another process found; ``place_of``: its places, as they are numbered here."""
        places = totals.places if place_of is None else place_of[totals.places]
        if len(places):
            self.grow(int(places.max()) + 1)
        self.counts[places] += totals.counts
        self.sums[places] += totals.sums
        self.lowest[places] = np.minimum(self.lowest[places], totals.lowest)
        self.highest[places] = np.maximum(self.highest[places], totals.highest)

    def totals(self) -> Totals:
        """Return the places that have rows."""
        places = np.flatnonzero(self.counts)
        arrays = (self.counts, self.sums, self.lowest, self.highest)
        return Totals(places, *(array[places] for array in arrays))

    def grow(self, places: int) -> None:
        """Make room for so many places."""
        if (missing := places - len(self.counts)) > 0:
            missing = max(missing, len(self.counts))
            for name, fill in (
                ("counts", 0),
                ("sums", 0),
                ("lowest", _LARGEST),
                ("highest", -_LARGEST),
            ):
                more = np.full(missing, fill, np.int64)
                setattr(self, name, np.concatenate([getattr(self, name), more]))


class Found(NamedTuple):
    """Names by their places (none for numbers), and totals by window, from one process."""

    names: list[str]
    windows: dict[int, Totals]


class Reader:
    """Adds up row groups."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.windows: dict[int, Window] = {}

    def take(self, table: pa.Table) -> None:
        """Add the rows of a row group."""
        merchants, amounts, times = table.combine_chunks().columns
        places = self._places(merchants.chunk(0))
        amounts = amounts.to_numpy()
        windows = times.cast(pa.int64()).to_numpy() // WINDOW_US
        first, last = int(windows.min()), int(windows.max())
        for window in range(first, last + 1):
            at = self.windows.setdefault(window, Window(_PLACES_MIN))
            if first == last:
                at.take(places, amounts)
            elif (mask := windows == window).any():
                at.take(places[mask], amounts[mask])

    def _places(self, merchants: pa.Array) -> Values:
        if not pa.types.is_dictionary(merchants.type):
            return merchants.to_numpy().astype(np.int64, copy=False)
        known = self.places
        names = merchants.dictionary.to_pylist()
        codes = np.fromiter((known.setdefault(n, len(known)) for n in names), np.int64, len(names))
        return codes[merchants.indices.to_numpy()]

    def found(self) -> Found:
        """Return the totals of all rows."""
        windows = {number: window.totals() for number, window in self.windows.items()}
        return Found(list(self.places), windows)


def read_part(files: list[Path], part: int, parts: int) -> Found:
    """Add up every ``parts``-th row group of the files."""
    reader = Reader()
    for number, (file, group) in enumerate(_row_groups(files)):
        if number % parts == part:
            reader.take(file.read_row_group(group, columns=_READ, use_threads=False))
    return reader.found()


def _row_groups(files: list[Path]) -> Iterator[tuple[pq.ParquetFile, int]]:
    for path in files:
        file = pq.ParquetFile(path, read_dictionary=["merchant"])
        yield from ((file, group) for group in range(file.num_row_groups))


def merged(found: list[Found]) -> pa.Table:
    """Return the answer of all processes."""
    places: dict[str, int] = {}
    windows: dict[int, Window] = {}
    for names, totals in found:
        place_of = np.array([places.setdefault(n, len(places)) for n in names]) if names else None
        for number, of_window in totals.items():
            windows.setdefault(number, Window(_PLACES_MIN)).merge(of_window, place_of)
    names = pa.array(list(places)) if places else None
    return pa.concat_tables(
        _table(number, window.totals(), names) for number, window in sorted(windows.items())
    )


def _table(number: int, totals: Totals, names: pa.Array | None) -> pa.Table:
    places = pa.array(totals.places)
    start = pa.array(np.full(len(places), number * WINDOW_US)).cast(pa.timestamp("us", "UTC"))
    columns: dict[str, Any] = {
        "merchant": places if names is None else names.take(places),
        "window_start": start,
        "payments": totals.counts,
        "total_cents": totals.sums,
        "min_cents": totals.lowest,
        "max_cents": totals.highest,
        "average_cents": totals.sums / totals.counts,
    }
    return pa.table(columns)


def answer(question: Question, pool: ProcessPoolExecutor | None) -> None:
    """Answer with the other processes of the pool; without them, alone."""
    files, parts = question.files(), question.workers
    others = range(1, parts)
    theirs = [pool.submit(read_part, files, part, parts) for part in others] if pool else []
    table = merged([read_part(files, 0, parts), *(each.result() for each in theirs)])
    folder = Path(question.output)
    folder.mkdir(parents=True)
    path = folder / "totals.parquet"
    pq.write_table(table, path, compression=CODEC, compression_level=CODEC_LEVEL)


def main(workers: str) -> None:
    """Answer the question in each line of the input."""
    pa.set_cpu_count(1)
    with ProcessPoolExecutor(max(int(workers) - 1, 1), get_context("spawn")) as pool:
        for line in sys.stdin:
            answer(Question.of(line), pool)
            print(DONE, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main(*sys.argv[1:])
