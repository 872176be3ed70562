"""One row per key out of rows that come and go, wherever rows and state are cut."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.materialize import Materialize
from laminar_core.operators.running import CombineRows
from laminar_core.operators.weights import weighted_schema
from tests.operators.updating_histories import History, Job, Line, line_of

SCHEMA = pa.schema([("count", pa.int64()), ("k", pa.string()), ("x", pa.float32())])
SPEC = Materialize("rows", ("k",), tuple(SCHEMA.names))


def job(spec: Materialize = SPEC, schema: pa.Schema = SCHEMA) -> Job:
    return Job(CombineRows("combine", spec.keys, spec.aggregates), spec, schema)


def pool(seed: int) -> pa.RecordBatch:
    choice = Random(seed).choice
    rows = [
        {
            "count": choice([1, 2, None]),
            "k": choice(["a", "b", None]),
            "x": choice([None, 1.5, -2.0]),
        }
        for _ in range(9)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def greatest(rows: pa.RecordBatch) -> Counter[Line]:
    """Return the greatest row of each key; null is least."""
    best: dict[str | None, dict] = {}
    for row in rows.to_pylist():
        other = best.setdefault(row["k"], row)
        if rank(row) > rank(other):
            best[row["k"]] = row
    return Counter(line_of(row) for row in best.values())


def rank(row: dict) -> list[tuple]:
    return [(row[name] is not None, row[name] or 0) for name in ("count", "x")]


def by_key(seen: Counter[Line], emitted: Sequence[tuple[Line, int]]) -> None:
    """Replace and delete rows by key, as a table does."""
    for line, weight in emitted:
        (there,) = [other for other in +seen if other[1] == line[1]] or [None]
        if there is not None:
            del seen[there]
        if weight == 1:
            assert there != line, f"{line} is emitted again"
            seen[line] = 1
        else:
            assert (weight, there) == (-1, line), f"{line} was not the row of its key"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(80))
def test_each_key_has_its_greatest_row(seed: int) -> None:
    History(job(), pool(seed), greatest, by_key, seed).run(steps=14)


def test_rows_that_are_only_a_key_come_and_go() -> None:
    schema = pa.schema([("k", pa.string())])
    made = job(Materialize("rows", ("k",), ("k",)), schema)
    history = History(
        made, pa.record_batch([["a", "b"]], schema=schema), lambda _: Counter(), by_key, 0
    )
    assert made.feed(history.rows([(0, 1), (1, 1)])) == [(("a",), 1), (("b",), 1)]
    assert made.feed(history.rows([(0, 2), (1, -1)])) == [(("b",), -1)]


def test_columns_without_an_order_are_refused() -> None:
    schema = pa.schema([("k", pa.string()), ("place", pa.struct([("x", pa.int64())]))])
    spec = Materialize("rows", ("k",), ("k", "place"))
    combine = CombineRows("combine", ("k",), spec.aggregates)
    with pytest.raises(ConfigurationError, match="'place' is struct") as refused:
        combine.output_schema(weighted_schema(schema))
    assert refused.value.code is ErrorCode.UNSUPPORTED_TYPE
