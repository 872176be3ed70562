"""An executor handles cases that the document leaves out: reset, versions, atomicity."""

from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import VERSIONS_KEY
from laminar_core.codec.key_groups import partition
from laminar_core.errors import ConfigurationError, IncompatibleStateError, ProtocolError
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.operators.executor_codec import decode_parts, encode_parts
from laminar_core.operators.stream_executor import (
    IncrementalAggState,
    IncrementalEowcState,
    StreamExecutor,
)
from laminar_core.protocol.types import WATERMARK_END_US, Generation
from tests.operators.executor_states import (
    RUNNING,
    SCHEMA,
    SECOND,
    WINDOWED,
    Row,
    at,
    batch_of,
    fed,
    restored,
    rows_of,
)


def test_queries_have_the_state_of_their_kind() -> None:
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    kinds = [type(state) for state in executor._states.values()]
    assert kinds == [IncrementalAggState, IncrementalEowcState]


def test_results_do_not_wait_for_somebody_to_take_them() -> None:
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    executor.process(batch_of([("a", 1, 1)]))
    executor.on_watermark(10 * SECOND)
    executor.process(batch_of([("a", 1, 2)]))
    parts = decode_parts(executor.checkpoint_state() or b"")
    assert parts[0].rows.column("sum(v)").to_pylist() == [2]
    assert parts[1].facts["late_row_count"] == 1


def test_filters_drop_rows_before_anything_is_kept() -> None:
    by_expression = replace(RUNNING, filter=pa.compute.field("v") > 1)
    by_function = replace(
        RUNNING, query_id="f", filter=lambda batch: pa.compute.is_null(batch["v"])
    )
    executor = StreamExecutor([by_expression, by_function], SCHEMA)
    assert fed(executor, [("a", 1, 0), ("a", 2, 0), ("b", None, 0)]) == [
        ("totals", "a", 2, 2.0),
        ("f", "b", None, None),
    ]


def test_what_is_pinned_is_what_was_there() -> None:
    """ERRATA 1.15: a short synchronous part; the rest may run later and elsewhere."""
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    fed(executor, [("a", 1, 1)])
    finish, expected = executor.pin_state(), executor.checkpoint_state()
    fed(executor, [("a", 1_000, 2), ("b", 5, 3)])
    list(executor.on_watermark(WATERMARK_END_US))
    assert finish() == expected


def test_a_query_is_found_by_its_id_whatever_the_order() -> None:
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    fed(executor, [("a", 1, 1)])
    again = restored(executor.checkpoint_state(), WINDOWED, RUNNING)
    assert fed(again, [("a", 1, 1)]) == [("totals", "a", 2, 1.0)]


@pytest.mark.parametrize(
    ("queries", "problem"),
    [
        ([RUNNING], "minutes: has state, but is not in the pipeline"),
        (
            [RUNNING, WINDOWED, replace(RUNNING, query_id="more")],
            "more: new, not in the checkpoint",
        ),
        (
            [replace(RUNNING, query_id="renamed"), WINDOWED],
            "totals: has state, but is not in the pipeline; renam",
        ),
        ([replace(RUNNING, keys=("v",)), WINDOWED], 'keys was \\["k"\\], is \\["v"\\]'),
    ],
)
def test_added_and_removed_queries_are_refused_too(queries: list, problem: str) -> None:
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    fed(executor, [("a", 1, 1)])
    state = executor.checkpoint_state()
    with pytest.raises(IncompatibleStateError, match=problem):
        StreamExecutor(queries, SCHEMA).restore_state(state)


def test_another_number_of_key_groups_is_another_definition() -> None:
    executor = StreamExecutor([RUNNING], SCHEMA)
    fed(executor, [("a", 1, 1)])
    context = SubtaskContext("stream_executor", 0, 1, 64, Generation(1))
    other = StreamExecutor([RUNNING], SCHEMA, context=context)
    with pytest.raises(IncompatibleStateError, match="key_groups was 128, is 64"):
        other.restore_state(executor.checkpoint_state())


def test_state_of_an_unknown_version_is_refused_by_name() -> None:
    """ERRATA 1.10, also if the definition says nothing of it."""
    executor = StreamExecutor([RUNNING], SCHEMA)
    fed(executor, [("a", 1, 1)])
    [part] = decode_parts(executor.checkpoint_state() or b"")
    rows = part.rows.replace_schema_metadata({VERSIONS_KEY: b'{"sum(v)": 7}'})
    with pytest.raises(IncompatibleStateError, match=r"sum\(v\) is of version 7"):
        restored(encode_parts([replace(part, rows=rows)]), RUNNING)
    definition = {**part.definition, "accumulators": {"sum(v)": 7}}
    with pytest.raises(IncompatibleStateError, match=r"sum\(v\) is of version 7"):
        restored(encode_parts([replace(part, rows=rows, definition=definition)]), RUNNING)


def test_state_that_cannot_be_written_fails_the_checkpoint() -> None:
    """ERRATA 1.4: nothing is left out."""
    executor = StreamExecutor([RUNNING, WINDOWED], SCHEMA)
    fed(executor, [("a", 1, 1)])

    def fail() -> Snapshot:
        raise MemoryError

    executor._states["minutes"]._keeper.snapshot = lambda _checkpoint_id: fail
    with pytest.raises(MemoryError):
        executor.checkpoint_state()


def test_state_that_cannot_be_merged_fails_the_restore() -> None:
    """ERRATA 1.5: no group is left out."""
    executor = StreamExecutor([RUNNING], SCHEMA)
    fed(executor, [("a", 1, 1), ("b", 1, 1)])
    [part] = decode_parts(executor.checkpoint_state() or b"")
    wrong = part.rows.set_column(2, "sum(v)", [[1.5] * part.rows.num_rows])
    with pytest.raises(IncompatibleStateError, match="columns of its state have changed"):
        restored(encode_parts([replace(part, rows=wrong)]), RUNNING)


def test_a_restore_comes_first_and_once() -> None:
    executor = StreamExecutor([RUNNING], SCHEMA)
    fed(executor, [("a", 1, 1)])
    state = executor.checkpoint_state()
    with pytest.raises(ProtocolError, match="must be called before the first row"):
        executor.restore_state(state)
    with pytest.raises(ProtocolError, match="must be called before the first row"):
        restored(state, RUNNING).restore_state(state)


def test_two_queries_of_one_id_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="another id"):
        StreamExecutor([RUNNING, replace(WINDOWED, query_id="totals")], SCHEMA)


def test_a_codec_that_nobody_knows_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="codec must be one of none, lz4, zstd, got 'gzip'"
    ):
        StreamExecutor([RUNNING], SCHEMA, codec="gzip")


# --- several executors ----------------------------------------------------------------------------


def context_of(index: int, parallelism: int) -> SubtaskContext:
    return SubtaskContext("stream_executor", index, parallelism, 8, Generation(1))


def executors(parallelism: int) -> list[StreamExecutor]:
    contexts = [context_of(i, parallelism) for i in range(parallelism)]
    return [StreamExecutor([RUNNING, WINDOWED], SCHEMA, context=context) for context in contexts]


def exchanged(all_of: list[StreamExecutor], rows: list[Row]) -> list[tuple]:
    parts = partition(batch_of(rows), ["k"], 8, len(all_of))
    return sorted(row for i, part in parts for row in rows_of(all_of[i].process(part)))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 4)])
def test_state_moves_by_key_groups(before: int, after: int) -> None:
    """ERRATA 1.14: any number of executors continues what any other number left."""
    keys = [chr(97 + i) for i in range(20)]
    old, new = executors(before), executors(after)
    exchanged(old, [(key, 1, 1) for key in keys])
    for executor in old:
        list(executor.on_watermark(5 * SECOND))
    states = [executor.checkpoint_state() for executor in old]
    for executor in new:
        assert executor.restore_state(*states) == 2
    totals = exchanged(new, [(key, 2, 2) for key in keys])
    assert totals == [("totals", key, 3, 1.5) for key in keys]
    closed = sorted(r for e in new for r in rows_of(e.on_watermark(WATERMARK_END_US)))
    assert closed == [("minutes", key, at(0), at(10), 2, 3) for key in keys]


def test_all_states_must_be_of_these_queries() -> None:
    old, [new] = executors(2), executors(1)
    other = StreamExecutor([RUNNING], SCHEMA, context=context_of(1, 2))
    for executor in (*old, other):
        executor.process(batch_of([("a", 1, 1)]))
    with pytest.raises(IncompatibleStateError, match="minutes: new"):
        new.restore_state(old[0].checkpoint_state(), other.checkpoint_state())


def test_an_executor_that_had_nothing_gives_nothing() -> None:
    old, [new] = executors(2), executors(1)
    exchanged(old, [("a", 1, 1)])
    states = [executor.checkpoint_state() for executor in old]
    assert states.count(None) == 1
    assert new.restore_state(*states) == 2
    assert exchanged([new], [("a", 1, 1)]) == [("totals", "a", 2, 1.0)]


def test_late_rows_alone_are_state() -> None:
    """Event time is unknown again after a restore together with an executor that had none."""
    fresh = StreamExecutor([WINDOWED], SCHEMA, context=context_of(0, 1))
    only = StreamExecutor([WINDOWED], SCHEMA, context=context_of(0, 2))
    list(only.on_watermark(50 * SECOND))
    only.process(batch_of([("a", 1, 1)]))
    assert fresh.restore_state(only.checkpoint_state(), None) == 1
    [part] = decode_parts(fresh.checkpoint_state() or b"")
    assert (part.facts["watermark_us"], part.facts["late_row_count"]) == (None, 1)


def test_an_executor_whose_state_is_missing_is_noticed() -> None:
    old, [new] = executors(2), executors(1)
    exchanged(old, [(chr(97 + i), 1, 1) for i in range(20)])
    with pytest.raises(ProtocolError, match="owns key groups"):
        new.restore_state(old[0].checkpoint_state())
