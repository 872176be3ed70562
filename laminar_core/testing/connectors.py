"""Check a connector of your own against the contract of its interface, with crashes at any moment.

``check_source`` reads a bounded source again and again as a job does that is killed and restored
with other numbers of workers. It needs no mocks and knows nothing of the source but its interface.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from laminar_core.connectors.base import Source, SourceReader
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.state.splits import missing_columns, unread

WAIT_SECONDS_MAX = 60
_PAUSE_MS = 2
_LIVES_MAX = 10_000

Rows = list[dict[str, Any]]


def check_source(
    source: Source, *, seeds: Sequence[int] = range(20), clock: Clock | None = None
) -> Rows:
    """Check that a bounded source returns each row once, whatever happens, and return its rows.

    First it is read in one go. Then, for each seed, readers die after some polls: their rows since
    the last checkpoint are forgotten, and the splits of that checkpoint are dealt to another number
    of workers. The rows that count must be those of the first reading, in the same order within
    each split if batches name one.

    Args:
        source: a bounded source; its input must not change meanwhile.
        seeds: each one is another sequence of crashes, the same in every run.
        clock: waits while a reader has nothing; for a source in simulated time, its clock.

    Raises:
        AssertionError: the source breaks its contract. The message says how, and names the seed.
    """
    waiting = clock or SystemClock()
    first = source.discovery().step({})
    assert first.complete, "this check is for bounded sources, whose discovery has one step"
    splits = first.splits
    missing = missing_columns(splits)
    assert not missing, f"the table of splits lacks {', '.join(missing)}: use split_columns()"
    ids = splits.column("split_id").to_pylist()
    assert len(set(ids)) == len(ids), f"a split_id is there twice: {ids}"
    assert not source.gaps(splits), f"rows are gone: {source.gaps(splits)}"
    expected = _Life(source, waiting, splits).read_to_the_end()
    for seed in seeds:
        _check_crashes(source, waiting, splits, expected, seed)
    return [row for rows in expected.values() for row in rows]


def _check_crashes(
    source: Source, clock: Clock, splits: pa.Table, expected: dict[int | None, Rows], seed: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - the same sequence in every run
    kept: defaultdict[int | None, Rows] = defaultdict(list)
    for _ in range(_LIVES_MAX):
        assert not source.gaps(splits), f"rows are gone: {source.gaps(splits)}"
        life = _Life(source, clock, splits)
        is_over = life.read_and_die(rng)
        splits = life.checkpoint
        for split_id, rows in life.rows_before_checkpoint.items():
            kept[split_id].extend(rows)
        if is_over:
            break
    for split_id in {*expected, *kept}:
        found, right = kept[split_id], expected.get(split_id, [])
        assert found == right or (split_id is None and _same(found, right)), (
            f"seed {seed}, split {split_id}: {len(found)} rows after crashes, and {len(right)} in "
            f"one go; the first difference is row {_first_difference(found, right)}"
        )


class _Life:
    """Workers of one generation: each reads some of the splits, until all of them die."""

    def __init__(self, source: Source, clock: Clock, splits: pa.Table) -> None:
        self._source = source
        self._clock = clock
        self.checkpoint = splits
        """The splits as of the last checkpoint."""
        self.rows_before_checkpoint: defaultdict[int | None, Rows] = defaultdict(list)
        self._rows_since: defaultdict[int | None, Rows] = defaultdict(list)

    def read_to_the_end(self) -> dict[int | None, Rows]:
        """Read everything with one worker."""
        reader = self._source.open(self.checkpoint)
        while not reader.finished:
            self._poll(reader, 1000)
        self._take_checkpoint([reader], self.checkpoint.slice(0, 0))
        reader.close()
        return self.rows_before_checkpoint

    def read_and_die(self, rng: random.Random) -> bool:
        """Read with some workers for a while; return whether everything was read."""
        open_splits = self.checkpoint.filter(pa.array(unread(self.checkpoint), pa.bool_()))
        done = self.checkpoint.filter(
            pa.array([not u for u in unread(self.checkpoint)], pa.bool_())
        )
        workers = rng.randint(1, 3)
        dealt = [list(range(w, open_splits.num_rows, workers)) for w in range(workers)]
        readers = [
            self._source.open(open_splits.take(pa.array(part, pa.int64()))) for part in dealt
        ]
        for _ in range(rng.randint(1, 8)):
            reader = rng.choice(readers)
            if not reader.finished:
                self._poll(reader, rng.choice([1, 2, 3, 7, 1000]))
            if rng.random() < 0.5:  # noqa: PLR2004 - a coin
                self._take_checkpoint(readers, done)
        for reader in readers:
            reader.close()
        return not any(unread(self.checkpoint))

    def _poll(self, reader: SourceReader, rows_max: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + 1000 * WAIT_SECONDS_MAX
        while (batch := reader.poll(rows_max)) is None:
            if reader.finished:
                return
            assert self._clock.monotonic_ms() < deadline_ms, "a reader has had no rows for a minute"
            self._clock.wait_ms(_PAUSE_MS)
        assert batch.rows.num_rows <= rows_max, "a batch has more rows than were asked for"
        self._rows_since[batch.split_id].extend(batch.rows.to_pylist())

    def _take_checkpoint(self, readers: Sequence[SourceReader], done: pa.Table) -> None:
        parts = [reader.position() for reader in readers]
        self.checkpoint = _stored(pa.concat_tables([done, *parts]))
        for split_id, rows in self._rows_since.items():
            self.rows_before_checkpoint[split_id].extend(rows)
        self._rows_since.clear()


def _stored(table: pa.Table) -> pa.Table:
    """Return a table as a checkpoint gives it back."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _same(found: Rows, right: Rows) -> bool:
    return sorted(map(repr, found)) == sorted(map(repr, right))


def _first_difference(found: Rows, right: Rows) -> int:
    pairs = zip(found, right, strict=False)
    return next(
        (n for n, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(found), len(right))
    )
