"""Histories of rows that come and go, for operators that keep totals of them.

Rows come, go, and now and then go before they come. The job is cut, of everything or of changes,
chains are merged as in a worker, and it goes on from the cut with any number of workers. What was
emitted up to the cut stays emitted.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from math import isnan
from random import Random
from typing import Any

import pyarrow as pa

from laminar_core.codec.arrow import decode_table, encode_table
from laminar_core.codec.key_groups import key_group_range, partition
from laminar_core.operators.base import Snapshot, StateTable, SubtaskContext
from laminar_core.operators.materialize import Materialize
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.updating_totals import TOTALS
from laminar_core.operators.weights import WEIGHT, weighted, weighted_schema
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.state.reading import merged_rows

MAX_PARALLELISM = 8
SEGMENTS_MAX = 3
ID = CheckpointId(1)
Line = tuple[Any, ...]
"""A row of output without its weight; of floats nine digits, NaN as text."""


class Job:
    """Both operators, the exchange between them, and the chain of each subtask."""

    def __init__(
        self, combine: CombineRows, spec: RunningAggregate | Materialize, schema: pa.Schema
    ) -> None:
        self.combine, self.spec, self.schema = combine, spec, weighted_schema(schema)
        self.chains: list[list[pa.Table]] = []
        self.start(1)

    def start(self, parallelism: int) -> None:
        exchanged = self.combine.output_schema(self.schema)
        contexts = [
            SubtaskContext("totals", i, parallelism, MAX_PARALLELISM, Generation(1))
            for i in range(parallelism)
        ]
        self.combiner = self.combine.open(contexts[0], self.schema)
        self.subtasks: list[Any] = [self.spec.open(context, exchanged) for context in contexts]
        self.chains = [[] for _ in contexts]

    def feed(self, rows: pa.RecordBatch) -> list[tuple[Line, int]]:
        found: list[tuple[Line, int]] = []
        for partial in self.combiner.process(rows):
            for i, part in partition(partial, self.spec.keys, MAX_PARALLELISM, len(self.subtasks)):
                for batch in self.subtasks[i].process(part):
                    assert batch.schema.equals(self.spec.output_schema(partial.schema))
                    found += [(line_of(row), row[WEIGHT]) for row in batch.to_pylist()]
        return found

    def cut(self, *, full: bool) -> list[Snapshot]:
        """Return the snapshot of each subtask as it comes back from a store."""
        if full:
            return [stored(subtask.snapshot(ID)()) for subtask in self.subtasks]
        snapshots: list[Snapshot] = []
        for chain, subtask in zip(self.chains, self.subtasks, strict=True):
            changes = stored(subtask.snapshot_changes(ID)())
            chain += [table.rows for table in changes.tables]
            if len(chain) > SEGMENTS_MAX:
                chain[1:] = subtask.merge_tables(TOTALS, iter(chain[1:]), None)
            tables = tuple(StateTable(TOTALS, rows) for rows in chain)
            snapshots.append(Snapshot(tables, changes.properties))
            self.require_readable(chain, subtask.snapshot(ID)())
        return snapshots

    def require_readable(self, chain: list[pa.Table], everything: Snapshot) -> None:
        """Without the operator, the chain is what the operator held at the cut."""
        held = [row for table in everything.tables for row in table.rows.to_pylist()]
        found: list[dict] = []
        if chain:
            found = merged_rows(chain, self.spec.describe(), None, TOTALS).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, held))

    def restore(self, snapshots: list[Snapshot], parallelism: int) -> None:
        owned = [key_group_range(i, MAX_PARALLELISM, len(snapshots)) for i in range(len(snapshots))]
        self.start(parallelism)
        for index, subtask in enumerate(self.subtasks):
            mine = key_group_range(index, MAX_PARALLELISM, parallelism)
            subtask.restore(
                [s for s, o in zip(snapshots, owned, strict=True) if set(o) & set(mine)]
            )

    def held(self) -> int:
        """Return the number of totals in a checkpoint."""
        snapshots = [subtask.snapshot(ID)() for subtask in self.subtasks]
        return sum(table.rows.num_rows for snapshot in snapshots for table in snapshot.tables)


class History:
    """One history, drawn step by step.

    ``pool``: all rows that there can be. ``expected``: what there has to be of rows that are there,
    each as often as it is.
    """

    def __init__(
        self,
        job: Job,
        pool: pa.RecordBatch,
        expected: Callable[[pa.RecordBatch], Counter[Line]],
        fold: Callable[[Counter[Line], Sequence[tuple[Line, int]]], None],
        seed: int,
    ) -> None:
        self.job, self.pool, self.expected, self.fold = job, pool, expected, fold
        self.random = Random(seed)
        self.weights: Counter[int] = Counter()
        """How often each row of the pool is there, negative if it has gone before it came."""
        self.seen: Counter[Line] = Counter()
        """The output, folded."""

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.random.random() < 0.3:
                self.cut()
            else:
                self.feed(self.drawn())
            self.check()
        self.feed([(place, -weight) for place, weight in self.weights.items() if weight < 0])
        self.check()
        self.feed([(place, -weight) for place, weight in self.weights.items()])
        assert not +self.seen, "all rows have gone"
        assert self.job.held() == 0

    def drawn(self) -> list[tuple[int, int]]:
        """Return places in the pool and how many of these rows come or go."""
        changes: list[tuple[int, int]] = []
        for _ in range(self.random.randrange(1, 6)):
            place = self.random.randrange(self.pool.num_rows)
            there = self.weights[place] + sum(w for p, w in changes if p == place)
            goes = there > 0 or self.random.random() < 0.15
            changes.append((place, -1 if goes and self.random.random() < 0.6 else 1))
            if there < 0:
                changes[-1] = (place, -there)
        return changes

    def feed(self, changes: list[tuple[int, int]]) -> None:
        self.fold(self.seen, self.job.feed(self.rows(changes)))
        for place, weight in changes:
            self.weights[place] += weight

    def rows(self, changes: list[tuple[int, int]]) -> pa.RecordBatch:
        places, weights = zip(*changes, strict=True) if changes else ((), ())
        return weighted(self.pool.take(pa.array(places, pa.int64())), weights)

    def check(self) -> None:
        if any(weight < 0 for weight in self.weights.values()):
            return
        places = [place for place, weight in self.weights.items() for _ in range(weight)]
        found = self.expected(self.pool.take(pa.array(places, pa.int64())))
        assert +self.seen == found, f"{self.seen}\n{found}"

    def cut(self) -> None:
        """Take a checkpoint; lose what comes after it and go on from it, now and then."""
        snapshots = self.job.cut(full=self.random.random() < 0.3)
        if self.random.random() < 0.6:
            self.job.feed(self.rows(self.drawn()))
            self.job.restore(snapshots, self.random.choice([1, 2, 3, 4]))


def stored(snapshot: Snapshot) -> Snapshot:
    tables = [StateTable(t.name, decode_table(encode_table(t.rows))) for t in snapshot.tables]
    return Snapshot(tuple(tables), json.loads(json.dumps(snapshot.properties)))


def line_of(row: dict[str, Any]) -> Line:
    return tuple(_plain(value) for name, value in row.items() if name != WEIGHT)


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "nan" if isnan(value) else float(f"{value:.9g}")
