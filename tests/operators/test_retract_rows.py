"""Rows that replace each other as rows that come and go, against the last row of each key."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, IncompatibleStateError
from laminar_core.operators.retract_rows import LAST, RetractRows, RowsRetractor
from laminar_core.operators.weights import WEIGHT
from laminar_core.protocol.types import CheckpointId
from tests.operators.joins.join_histories import LEFT_SCHEMA, Row, batch, context
from tests.operators.one_input import ONE_INPUT_STEPS, WORKERS, OneInputHistory, as_row
from tests.sampling import drawn

FOR_EVER = RetractRows("back", ("k",))


def with_ttl(ttl_us: int, lag_us: int = 0) -> RetractRows:
    return RetractRows("back", ("k",), "t", ttl_us, lag_us)


def folded(output: list[dict]) -> Counter[tuple]:
    """Return what is there in the end: rows with the sum of their weights."""
    found: Counter[tuple] = Counter()
    for row in output:
        found[tuple(item for item in row.items() if item[0] != WEIGHT)] += row[WEIGHT]
    return Counter({row: weight for row, weight in found.items() if weight})


def by_key(rows: list[Row]) -> dict[str | None, list[Row]]:
    found: dict[str | None, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


@settings(deadline=None, max_examples=drawn(20))
@given(ONE_INPUT_STEPS, WORKERS)
def test_what_is_there_in_the_end_is_the_last_row_of_each_key(
    steps: list[tuple], workers: int
) -> None:
    """Goal: whatever batches, cuts and numbers of workers; and no row says nothing."""
    history = OneInputHistory(FOR_EVER, (), workers, None).run(steps)
    last = {row[0]: row for row in history.accepted[0]}
    assert folded(history.output) == Counter(tuple(as_row(row).items()) for row in last.values())
    emitted: Counter[tuple] = Counter()
    kept: dict[str | None, Row] = {}
    for rows in history.batches:
        for key, fresh in by_key(rows).items():
            if kept.get(key) != fresh[-1]:
                emitted[-1] += key in kept
                emitted[1] += 1
            kept[key] = fresh[-1]
    assert +emitted == Counter(row[WEIGHT] for row in history.output)


@settings(deadline=None, max_examples=drawn(20))
@given(st.integers(1, 8), ONE_INPUT_STEPS, WORKERS)
def test_the_row_of_a_key_that_was_forgotten_stays(
    ttl_us: int, steps: list[tuple], workers: int
) -> None:
    """Goal: a row as far behind the watermark as the time to live finds what it replaces."""
    history = OneInputHistory(with_ttl(ttl_us, ttl_us), (), workers, ttl_us).run(steps)
    kept: dict[str | None, tuple[Row, int]] = {}
    wanted: Counter[tuple] = Counter()
    for rows in history.batches:
        for key, fresh in by_key(rows).items():
            newest_us = max(row[1] or 0 for row in fresh)
            before, until_us = kept.get(key, (None, 0))
            if before is not None and until_us >= newest_us:
                wanted[tuple(as_row(before).items())] -= 1
            wanted[tuple(as_row(fresh[-1]).items())] += 1
            kept[key] = fresh[-1], max(until_us, newest_us + ttl_us)
    assert folded(history.output) == Counter({row: n for row, n in wanted.items() if n})


def opened(spec: RetractRows = FOR_EVER, schema: pa.Schema = LEFT_SCHEMA) -> RowsRetractor:
    return spec.open(context(), schema)


def changes(subtask: RowsRetractor, rows: list[Row]) -> list[tuple[int, int]]:
    parts = list(subtask.process(batch(0, rows)))
    return [(row["id"], row[WEIGHT]) for part in parts for row in part.to_pylist()]


def test_a_row_takes_the_one_that_it_replaces_back_once_per_batch() -> None:
    subtask = opened()
    assert changes(subtask, [("a", 1, 1), (None, 1, 7), ("a", 0, 2)]) == [(2, 1), (7, 1)]
    assert changes(subtask, [("a", 0, 2)]) == []
    assert changes(subtask, [("a", 5, 3), ("a", 0, 2)]) == []
    assert changes(subtask, [("a", 9, 4), (None, 1, 7)]) == [(2, -1), (4, 1)]
    assert (list(subtask.on_watermark(50)), subtask.late_row_count) == ([], 0)


def test_the_state_is_one_row_per_key_and_leaves_with_its_time() -> None:
    """Goal: many times as many rows and keys come as are kept."""
    forever, subtask = opened(), opened(with_ttl(60))
    for time_us in range(0, 6_000, 120):
        rows: list[Row] = [(str(key), time_us, key + time_us) for key in range(20)]
        changes(forever, rows)
        changes(subtask, [(f"{time_us} {key}", at, number) for key, at, number in rows])
        subtask.on_watermark(time_us)
        assert subtask.held_row_count <= (60 * 1.25 / 120 + 2) * 20
    assert forever.held_row_count == 20
    assert subtask.expired_row_count > 45 * 20
    subtask.snapshot_changes(CheckpointId(1))
    tables = list(forever.snapshot(CheckpointId(1))().tables)
    assert sum(len(table.rows.column(LAST)) for table in tables) == 20


def test_columns_are_plain_and_floats_have_one_form() -> None:
    encoded = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("s", encoded), ("d", encoded), ("f", pa.float64())])
    spec = RetractRows("back", ("d", "s"))
    words = pa.array(["y", "y", None]).dictionary_encode()

    def rows(*numbers: float | None) -> pa.RecordBatch:
        return pa.record_batch([words, words, pa.array(numbers, pa.float64())], schema=schema)

    subtask = opened(spec, schema)
    [found] = subtask.process(rows(1.0, -0.0, float("nan")))
    assert found.schema.equals(spec.output_schema(schema))
    assert found.schema.names == ["s", "d", "f", WEIGHT]
    assert str(found.column("f").to_pylist()) == "[0.0, nan]"
    assert list(subtask.process(rows(1.0, 0.0, -float("nan")))) == []
    gone, came = subtask.process(rows(1.0, None, float("nan")))
    assert [str(part.to_pylist()[0]["f"]) for part in (gone, came)] == ["0.0", "None"]


def test_a_time_to_live_may_change_and_not_appear() -> None:
    subtask = opened(with_ttl(5))
    changes(subtask, [("a", 1, 1)])
    snapshot = subtask.snapshot(CheckpointId(1))()
    with pytest.raises(IncompatibleStateError):
        opened().restore([snapshot])
    opened(with_ttl(7)).restore([subtask.snapshot(CheckpointId(1))()])
    assert with_ttl(5).describe() == with_ttl(7).describe()
    assert (FOR_EVER.updates_by, with_ttl(5).updates_by) == (("k",), ())
    assert RetractRows("back", ("k", "t"), "t", 5).updates_by == ("k", "t")


@pytest.mark.parametrize(
    ("spec", "schema", "problem"),
    [
        (FOR_EVER, LEFT_SCHEMA.remove(1), "no column 'k'"),
        (with_ttl(5), LEFT_SCHEMA.remove(2), "no column 't'"),
        (FOR_EVER, LEFT_SCHEMA.append(pa.field("l", pa.list_(pa.int8()))), "'l' is list<"),
        (FOR_EVER, LEFT_SCHEMA.append(pa.field(WEIGHT, pa.int32())), "rename it"),
        (RetractRows("back", tuple(LEFT_SCHEMA.names)), LEFT_SCHEMA, "no row differs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    spec: RetractRows, schema: pa.Schema, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        spec.output_schema(schema)
    assert "\n" not in str(caught.value)
