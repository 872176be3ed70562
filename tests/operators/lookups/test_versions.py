"""The lookup in versions, row by row against a dictionary, whatever cuts and restores."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.key_groups import key_groups_of, partition
from laminar_core.errors import ConfigurationError, DataError
from laminar_core.operators.base import Snapshot, needs_event_time, output_watermark_of
from laminar_core.operators.lookups.columns import LookupColumns, LookupHow
from laminar_core.operators.lookups.versions import NEWEST, Life, VersionLookup
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import MAX_PARALLELISM, STEPS, History, Row, context
from tests.sampling import drawn

TIME = pa.timestamp("us")
LEFT = pa.schema([("id", pa.int64()), ("k", pa.dictionary(pa.int32(), pa.string())), ("t", TIME)])
RIGHT = pa.schema(
    [("key", pa.string()), ("n", pa.int64()), ("gone", pa.bool_()), ("t", TIME), ("x", pa.null())]
)


def lookup(ttl_us: int | None = None, how: LookupHow = "left") -> VersionLookup:
    columns = LookupColumns(("k",), ("key",), how, ("n",), "_right", hidden=("gone",))
    life = None if ttl_us is None else Life(ttl_us, "t", "t")
    return VersionLookup("lookup", columns, "gone", life)


def left(rows: Sequence[tuple]) -> pa.RecordBatch:
    keys, times, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    encoded = pa.array(keys, pa.string()).dictionary_encode()
    return pa.record_batch([pa.array(numbers), encoded, pa.array(times, TIME)], schema=LEFT)


def right(rows: Sequence[tuple]) -> pa.RecordBatch:
    """Return versions; every fourth number deletes its key."""
    keys, times, numbers = zip(*rows, strict=True)
    gone = [None if number % 2 else number % 4 == 0 for number in numbers]
    columns = (keys, numbers, gone, times, [None] * len(keys))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RIGHT, strict=True)]
    return pa.record_batch(arrays, schema=RIGHT)


class Versions(History):
    """Runs the steps, and compares each row with a dictionary as it leaves."""

    schemas = (LEFT, RIGHT)

    def __init__(self, spec: VersionLookup, ttl_us: int | None, workers: int) -> None:
        super().__init__(spec, (), workers)
        self._ttl_us = ttl_us
        self._known: dict[str, tuple[int | None, int]] = {}
        """By key: the version, and when it expires."""
        self._number = 0
        self.met = 0

    def run(self, steps: Any) -> "Versions":
        for kind, *values in steps:
            getattr(self, kind)(*values)
        return self

    def _advance(self, subtask: int, watermark_us: int) -> None:
        if watermark_us <= self._watermarks_us[subtask]:
            return
        self._watermarks_us[subtask] = watermark_us
        looker = self.subtasks[subtask]
        assert list(looker.on_watermark(watermark_us)) == []
        assert output_watermark_of(looker, watermark_us) == watermark_us
        for group in self.owned[subtask]:
            self._reached_us[group] = max(self._reached_us[group], watermark_us)

    def rows(self, side: int, rows: list[Row]) -> None:
        now_us = max(*self._watermarks_us, 5)
        timed = [(key, None if t is None else now_us + t, 0) for key, t, _ in rows]
        if side == 1:
            self._versions([row for row in timed if row[1] is not None])
            return
        numbered = [(key, t, n) for n, (key, t, _) in enumerate(timed)]
        found = {row["id"]: row["n"] for row in self._sent(0, left(numbered))}
        groups = key_groups_of(left(numbered), ["k"], MAX_PARALLELISM).tolist()
        for (key, t, n), group in zip(numbered, groups, strict=True):
            wanted = self._seen(key, t)
            is_late = t is not None and t < self._reached_us[group]
            assert found.get(n) == wanted or (is_late and found.get(n) is None)
            self.met += found.get(n) is not None
        if self.spec.columns.how == "left":
            assert len(found) == len(rows)

    def _versions(self, rows: list[Row]) -> None:
        numbered = [(key, t, self._number + n) for n, (key, t, _) in enumerate(rows)]
        self._number += len(rows)
        if not rows:
            return
        assert list(self._sent(1, right(numbered))) == []
        for key, t, n in numbered:
            if key is not None:
                expires_us = max(t + (self._ttl_us or 0), self._known.get(key, (0, 0))[1])
                self._known[key] = (None if n % 4 == 0 else n, expires_us)

    def _sent(self, side: int, batch: pa.RecordBatch) -> list[dict]:
        workers = len(self.subtasks)
        parts = partition(batch, [("k", "key")[side]], MAX_PARALLELISM, workers)
        return [
            row
            for subtask, part in parts
            for emitted in self.subtasks[subtask].process_input(side, part)
            for row in emitted.to_pylist()
        ]

    def _seen(self, key: str | None, t: int | None) -> int | None:
        version, expires_us = self._known.get(key, (None, 0)) if key is not None else (None, 0)
        is_alive = self._ttl_us is None or (t is not None and expires_us >= t)
        return version if is_alive else None


@settings(deadline=None, max_examples=drawn(100))
@given(
    st.none() | st.integers(1, 9),
    st.sampled_from(["inner", "left"]),
    STEPS,
    st.integers(1, 3),
)
def test_each_row_meets_the_newest_version_that_has_come(
    ttl_us: int | None, how: LookupHow, steps: list[tuple], workers: int
) -> None:
    """Goal: exact for the order of arrival, after any cuts, merges and other numbers of workers."""
    Versions(lookup(ttl_us, how), ttl_us, workers).run(steps)


def test_the_histories_do_meet_versions() -> None:
    steps = [("rows", 1, [("a", 0, 0), ("b", 1, 0)]), ("cut",), ("restart", 3)]
    steps += [("rows", 0, [("a", 0, 0), ("b", 2, 0), ("c", 0, 0)]), ("full_restart", 2)]
    assert Versions(lookup(9), 9, 1).run([*steps, *steps]).met > 2


def numbers(looker: Any, rows: Sequence[tuple]) -> list[int | None]:
    batches = looker.process_input(0, left(rows))
    return [row["n"] for batch in batches for row in batch.to_pylist()]


def test_a_row_leaves_at_once_with_the_last_of_several_versions() -> None:
    looker = lookup().open(context(), LEFT, RIGHT)
    assert numbers(looker, [("a", 1, 1)]) == [None]
    list(looker.process_input(1, right([("a", 9, 1), ("a", 3, 2), (None, 1, 3)])))
    assert numbers(looker, [("a", 1, 1), (None, 1, 1), ("b", 1, 1)]) == [2, None, None]
    list(looker.process_input(1, right([("a", 9, 4)])))
    assert numbers(looker, [("a", 1, 1)]) == [None], "deleted"
    (batch,) = lookup(how="left").open(context(), LEFT, RIGHT).process_input(0, left([("a", 1, 1)]))
    assert batch.schema.names == ["id", "k", "t", "n"]
    assert batch.schema.field("k").type == LEFT.field("k").type


def test_a_version_lives_as_long_after_its_time_as_asked() -> None:
    looker = lookup(5).open(context(), LEFT, RIGHT)
    list(looker.process_input(1, right([("a", 10, 1)])))
    assert numbers(looker, [("a", 15, 1), ("a", 16, 1), ("a", None, 1)]) == [1, None, None]
    with pytest.raises(DataError, match="no event time"):
        looker.process_input(1, right([("a", None, 1)]))


@pytest.mark.parametrize("ttl_us", [None, 5])
def test_the_state_is_a_row_for_each_key_that_lives(ttl_us: int | None) -> None:
    """Goal: a hundred times the rows of the bound go through, and few times the bound are held."""
    looker, keys = lookup(ttl_us).open(context(), LEFT, RIGHT), 20
    changed = most = 0
    for time_us in range(1, 350):
        first = 0 if ttl_us is None else time_us * 2
        rows = [(f"k{first + n % keys}", time_us, 1) for n in range(4 * (time_us % 5), keys)]
        list(looker.process_input(1, right(rows)))
        looker.on_watermark(time_us)
        changed += len(rows)
        if time_us % 7 == 0:
            list(looker.snapshot_changes(CheckpointId(1))().tables)
        most = max(most, looker.held_row_count)
    bound = keys if ttl_us is None else keys + 2 * ttl_us
    assert changed > 100 * bound
    assert bound / 2 < most < 5 * bound
    assert (looker.expired_row_count > 0) is (ttl_us is not None)


def test_keys_that_are_deleted_leave_memory() -> None:
    looker = lookup().open(context(), LEFT, RIGHT)
    for round_ in range(30):
        for number in (1, 4):
            rows = [(f"{round_}-{n}", 1, number) for n in range(200)]
            list(looker.process_input(1, right(rows)))
        list(looker.snapshot_changes(CheckpointId(1))().tables)
    assert looker.held_row_count < 4_000


def test_a_snapshot_has_one_table_and_needs_event_time_only_to_forget() -> None:
    spec = lookup(7)
    assert needs_event_time(spec)
    assert not needs_event_time(lookup())
    looker = spec.open(context(), LEFT, RIGHT)
    list(looker.process_input(1, right([("a", 1, 1), ("b", 1, 4)])))
    (whole,) = looker.snapshot(CheckpointId(1))().tables
    (changes,) = looker.snapshot_changes(CheckpointId(1))().tables
    assert (whole.name, whole.rows.num_rows, changes.rows.num_rows) == (NEWEST, 2, 2)
    assert spec.state_tables(LEFT, RIGHT) == {NEWEST: changes.rows.schema}
    (merged,) = looker.merge_tables(NEWEST, [changes.rows, changes.rows], None)
    assert merged.num_rows == 2
    assert lookup(8).describe() == spec.describe()
    restored = spec.open(context(), LEFT, RIGHT)
    restored.restore([Snapshot((changes,), looker.snapshot(CheckpointId(1))().properties)])
    looker.on_watermark(WATERMARK_END_US)
    assert numbers(restored, [("a", 1, 1), ("b", 1, 1)]) == [1, None]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"columns": ("key",), "left_keys": ("key",)}, "no column 'key'; there are: id, k, t"),
        ({"columns": ()}, "lookup adds no column: name one of key, n"),
        ({"how": "full"}, "how is left or inner, not full"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(change: dict, problem: str) -> None:
    options = {"left_keys": ("k",), "how": "left", "columns": ("n",)} | change
    spec = VersionLookup("lookup", LookupColumns(right_keys=("key",), suffix="_r", **options))
    with pytest.raises(ConfigurationError) as caught:
        spec.output_schema(LEFT, RIGHT)
    assert problem in str(caught.value)


def test_deleted_is_a_boolean_and_a_key_has_no_name_of_the_state() -> None:
    columns = LookupColumns(("k",), ("key",), "left", None, "_right")
    with pytest.raises(ConfigurationError, match="so it is bool, not int64"):
        VersionLookup("lookup", columns, "n").output_schema(LEFT, RIGHT)
    named = LookupColumns(("k",), (NEWEST,), "left", None, "_right")
    renamed = RIGHT.set(0, pa.field(NEWEST, pa.string()))
    with pytest.raises(ConfigurationError, match="rename the key with map"):
        VersionLookup("lookup", named).output_schema(LEFT, renamed)


def test_a_version_may_have_identifiers():
    """Such as those of Parquet files."""
    right = pa.schema([("key", pa.string()), ("uuid", pa.uuid())])
    columns = LookupColumns(("k",), ("key",), "left", ("uuid",), "_right")
    looker = VersionLookup("lookup", columns).open(context(0, 1), LEFT, right)
    storage = pa.array([b"a" * 16, b"b" * 16], pa.binary(16))
    versions = [pa.array(["x", "y"]), pa.ExtensionArray.from_storage(pa.uuid(), storage)]
    list(looker.process_input(1, pa.record_batch(versions, schema=right)))
    (found,) = looker.process_input(0, left([("y", 1, 1), ("z", 1, 2)]))
    assert found.column("uuid").storage.to_pylist() == [b"b" * 16, None]
