"""Running totals: what is emitted, what a snapshot holds, and who restores it."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.accumulators import VERSIONS_KEY
from laminar_core.codec.arrow import decode_table, encode_table
from laminar_core.codec.key_groups import partition
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    IncompatibleStateError,
    ProtocolError,
)
from laminar_core.operators import agg, running
from laminar_core.operators.base import Snapshot, SubtaskContext, one_table
from laminar_core.operators.running import CombineRows, RunningAggregate, RunningAggregator
from laminar_core.protocol.types import CheckpointId, Generation
from tests.sampling import drawn

INPUT = pa.schema([("merchant", pa.string()), ("v", pa.int64())])
AGGREGATES = (agg.count(), agg.sum("v", name="total"), agg.count_distinct("v", name="kinds"))
COMBINE = CombineRows("combine", ("merchant",), AGGREGATES)
MERGING = RunningAggregate("totals", ("merchant",), AGGREGATES)
EXCHANGED = COMBINE.output_schema(INPUT)
KEY_GROUPS = 8
Row = tuple[str | None, int | None]


def at(subtask_index: int = 0, parallelism: int = 1) -> SubtaskContext:
    return SubtaskContext("totals", subtask_index, parallelism, KEY_GROUPS, Generation(1))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    merchants, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.record_batch(
        [pa.array(merchants, pa.string()), pa.array(values, pa.int64())], schema=INPUT
    )


def combined(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    for batch in COMBINE.open(at(), INPUT).process(batch_of(rows)):
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.equals(EXCHANGED)
        yield batch


def fed(subtask: RunningAggregator, rows: list[Row]) -> list[dict]:
    return [
        row for b in combined(rows) for result in subtask.process(b) for row in result.to_pylist()
    ]


def stored(snapshot: Snapshot) -> Snapshot:
    """As it comes back from a store."""
    tables = [decode_table(encode_table(table)) for table in snapshot.rows()]
    return replace(snapshot, tables=list(one_table(tables)))


def test_each_batch_tells_the_new_totals_of_its_keys() -> None:
    subtask = MERGING.open(at(), EXCHANGED)
    assert fed(subtask, [("a", 1), ("b", 5), ("a", 2)]) == [
        {"merchant": "a", "count": 2, "total": 3, "kinds": 2},
        {"merchant": "b", "count": 1, "total": 5, "kinds": 1},
    ]
    assert fed(subtask, [("a", 1), (None, None)]) == [
        {"merchant": "a", "count": 3, "total": 4, "kinds": 2},
        {"merchant": None, "count": 1, "total": None, "kinds": 0},
    ]
    assert (fed(subtask, []), list(subtask.on_watermark(9))) == ([], [])


def test_encoded_keys_are_sent_plain() -> None:
    batch = batch_of([("a", 1), (None, 2), ("a", 3)])
    encoded = batch.set_column(0, "merchant", batch.column(0).dictionary_encode())
    [found] = COMBINE.open(at(), encoded.schema).process(encoded)
    assert found.equals(next(combined([("a", 1), (None, 2), ("a", 3)])))


def test_results_come_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "OUTPUT_ROWS_MAX", 2)
    subtask = MERGING.open(at(), EXCHANGED)
    [partial] = combined([(key, 1) for key in "abcde"])
    assert [batch.num_rows for batch in subtask.process(partial)] == [2, 2, 1]


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.none() | st.integers(-9, 9)), max_size=6
)
STEPS = st.lists(ROWS | st.sampled_from(["full", "changes", "merge"]), max_size=12)


class Job:
    """All subtasks, their snapshots of changes so far, and a dictionary that says the same."""

    def __init__(self, parallelism: int) -> None:
        self.model: dict[str | None, list[int | None]] = {}
        self.chains: list[list[pa.Table]] = []
        self.start(parallelism)

    def start(self, parallelism: int) -> None:
        contexts = [at(i, parallelism) for i in range(parallelism)]
        self.subtasks = [MERGING.open(context, EXCHANGED) for context in contexts]
        self.chains = [[] for _ in contexts]

    def add(self, rows: list[Row]) -> None:
        found = {}
        for partial in combined(rows):
            parts = partition(partial, ["merchant"], KEY_GROUPS, len(self.subtasks))
            for owner, part in parts:
                for result in self.subtasks[owner].process(part):
                    found |= {row["merchant"]: row for row in result.to_pylist()}
        for key, value in rows:
            self.model.setdefault(key, []).append(value)
        for key in {key for key, _ in rows}:
            known = [value for value in self.model[key] if value is not None]
            assert found.pop(key) == {
                "merchant": key,
                "count": len(self.model[key]),
                "total": sum(known) if known else None,
                "kinds": len(set(known)),
            }
        assert found == {}

    def restart(self, parallelism: int, *, changes: bool) -> None:
        name = "snapshot_changes" if changes else "snapshot"
        pending = [getattr(subtask, name)(CheckpointId(1)) for subtask in self.subtasks]
        for subtask in self.subtasks:  # Not in the snapshot.
            for partial in combined([("a", 1_000), ("new", 1_000)]):
                list(subtask.process(partial))
        snapshots = [stored(finish()) for finish in pending]
        if changes:
            snapshots = [
                replace(snapshot, tables=[*chain, *snapshot.tables])
                for chain, snapshot in zip(self.chains, snapshots, strict=True)
            ]
        self.start(parallelism)
        for subtask in self.subtasks:
            owned = set(range(*[
                subtask._context.subtask_index * KEY_GROUPS // parallelism,
                (subtask._context.subtask_index + 1) * KEY_GROUPS // parallelism,
            ]))  # fmt: skip
            subtask.restore(
                [s for s in snapshots if owned & set(range(*s.properties["key_groups"]))]
            )

    def cut(self) -> None:
        for subtask, chain in zip(self.subtasks, self.chains, strict=True):
            chain.extend(stored(subtask.snapshot_changes(CheckpointId(1))()).tables)

    def merge(self) -> None:
        for subtask, chain in zip(self.subtasks, self.chains, strict=True):
            rows = [table.rows for table in chain]
            (merged,) = subtask.merge_tables("", rows, None)
            chain[:] = one_table([merged])
            assert len({str(key) for key in merged.column("merchant")}) == merged.num_rows


@settings(deadline=None, max_examples=drawn(60))
@given(STEPS, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]))
def test_totals_survive_any_restart_at_any_parallelism(
    steps: list, before: int, after: int
) -> None:
    """Goal: full snapshots, chains of changes and merged chains restore to the same totals."""
    job = Job(before)
    for step in steps:
        match step:
            case "full":
                job.restart(after, changes=False)
            case "changes":
                job.cut()
            case "merge":
                job.merge()
            case _:
                job.add(step)
    job.restart(after, changes=True)
    job.add([("a", 1), ("b", 2), ("c", 3), (None, 4)])


def test_a_subtask_without_keys_has_no_table_and_says_which_key_groups_it_has() -> None:
    snapshot = MERGING.open(at(1, 2), EXCHANGED).snapshot(CheckpointId(1))()
    assert (list(snapshot.tables), snapshot.properties) == ([], {"key_groups": [4, 8]})


def test_key_groups_that_are_missing_are_noticed() -> None:
    snapshot = MERGING.open(at(1, 2), EXCHANGED).snapshot(CheckpointId(1))()
    with pytest.raises(ProtocolError, match="owns key groups"):
        MERGING.open(at(), EXCHANGED).restore([snapshot])


def snapshot_of(rows: list[Row]) -> Snapshot:
    subtask = MERGING.open(at(), EXCHANGED)
    fed(subtask, rows)
    return subtask.snapshot(CheckpointId(1))()


def test_state_of_another_version_of_a_function_is_refused_by_name() -> None:
    snapshot = snapshot_of([("a", 1)])
    [table] = snapshot.rows()
    newer = table.replace_schema_metadata({VERSIONS_KEY: b'{"distinct(v)": 2}'})
    with pytest.raises(IncompatibleStateError, match=r"distinct\(v\) is of version 2"):
        MERGING.open(at(), EXCHANGED).restore([replace(snapshot, tables=one_table([newer]))])


def test_state_of_other_columns_is_refused() -> None:
    snapshot = snapshot_of([("a", 1)])
    other = replace(MERGING, aggregates=AGGREGATES[:2])
    with pytest.raises(IncompatibleStateError, match="columns of its state have changed") as caught:
        other.open(at(), EXCHANGED).restore([snapshot])
    assert caught.value.code is ErrorCode.OPERATORS_CHANGED
    assert "change it back, or start anew with --reset-state totals" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"keys": ("nobody",)}, ErrorCode.WRONG_SCHEMA),
        ({"aggregates": (agg.sum("nothing"),)}, ErrorCode.WRONG_SCHEMA),
        ({"aggregates": (agg.first("v", by="nothing"),)}, ErrorCode.WRONG_SCHEMA),
        ({"aggregates": (agg.sum("merchant"),)}, ErrorCode.UNSUPPORTED_TYPE),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    changes: dict, code: ErrorCode
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replace(COMBINE, **changes).output_schema(INPUT)
    assert caught.value.code is code


def test_a_list_is_no_key() -> None:
    with pytest.raises(ConfigurationError, match="cannot be a key"):
        COMBINE.output_schema(INPUT.set(0, pa.field("merchant", pa.list_(pa.int8()))))


def test_two_results_of_one_name_are_refused() -> None:
    twice = replace(MERGING, aggregates=(agg.count(), agg.count()))
    with pytest.raises(ConfigurationError, match="two columns would be called 'count'"):
        twice.output_schema(EXCHANGED)


def test_descriptions_say_what_the_state_means() -> None:
    assert MERGING.describe()["keys"] == ["merchant"]
    assert COMBINE.describe()["aggregates"] == MERGING.describe()["aggregates"]
    assert MERGING.describe() != replace(MERGING, aggregates=AGGREGATES[:1]).describe()
