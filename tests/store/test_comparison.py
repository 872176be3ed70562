"""Two checkpoints are compared as two dictionaries would be."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.segment import SegmentRef
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.comparison import Comparison, compare_operator
from tests.sampling import drawn
from tests.store.join_states import write_join
from tests.store.stores import claim, complete, open_job
from tests.store.window_states import DESCRIPTIONS, Panes, write_windows


@pytest.fixture
def store() -> CheckpointStore:
    store = open_job()
    claim(store)
    return store


def counts(found: Comparison) -> tuple[int, int, int, int]:
    added, removed, changed = map(found.count, ("added", "removed", "changed"))
    return added, removed, changed, found.unchanged_count


def test_keys_that_came_went_changed_and_stayed(store):
    before = write_windows(store, 1, [{("a", 0): (1, 5), ("b", 0): (2, 7), ("c", 0): (1, 1)}])
    after = write_windows(store, 2, [{("a", 0): (1, 5), ("b", 0): (3, 9), ("c", 10): (1, 1)}])
    assert counts(compare_operator(store.parts, before, after, "totals")) == (1, 1, 1, 1)


def test_the_same_state_in_more_pieces_has_not_changed(store):
    before = write_windows(store, 1, [{("a", 0): (3, 5), ("b", 0): (2, 7)}])
    pieces: list[Panes] = [{("a", 0): (1, 5)}, {("a", 0): (2, 0), ("b", 0): (2, 7)}]
    after = write_windows(store, 2, pieces)
    assert counts(compare_operator(store.parts, before, after, "totals")) == (0, 0, 0, 2)


def test_with_other_workers_keys_are_the_same(store):
    rows = {(name, 0): (1, 5) for name in "abcdefgh"}
    before = write_windows(store, 1, [rows], parallelism=2)
    after = write_windows(store, 2, [{**rows, ("a", 0): (2, 6)}], parallelism=3)
    found = compare_operator(store.parts, before, after, "totals")
    assert (len(found.parts), counts(found)) == (1, (0, 0, 1, 7))


def test_with_the_same_workers_each_compares_its_own(store):
    rows = {(name, 0): (1, 5) for name in "abcdefgh"}
    before, after = (write_windows(store, number, [rows]) for number in (1, 2))
    assert len(compare_operator(store.parts, before, after, "totals").parts) == 2


def test_positions_of_sources_change(store):
    before = write_windows(store, 1, [], next_row=3)
    after = write_windows(store, 2, [], next_row=5)
    (part,) = compare_operator(store.parts, before, after, "in").parts
    assert part.before.column("offset").to_pylist() == ["3", "3"]
    assert part.after.column("offset").to_pylist() == ["5", "5"]


def test_an_operator_that_only_one_of_them_has(store):
    before = write_windows(store, 1, [{("a", 0): (1, 5)}])
    after = complete(store, 2, before.generation)
    assert counts(compare_operator(store.parts, before, after, "totals")) == (0, 1, 0, 0)
    assert counts(compare_operator(store.parts, before, after, "window"))[0] > 0
    assert compare_operator(store.parts, before, after, "out").parts == ()


def redescribed(manifest: CheckpointManifest, **changes: object) -> CheckpointManifest:
    descriptions = {**DESCRIPTIONS, "totals": {**DESCRIPTIONS["totals"], **changes}}
    return CheckpointManifest(
        **dict(manifest)
        | {
            "operators_description": descriptions,
            "fingerprint": {name: fingerprint_of(text) for name, text in descriptions.items()},
        }
    )


def test_another_definition_is_said(store):
    before = write_windows(store, 1, [{("a", 0): (1, 5)}])
    after = write_windows(store, 2, [{("a", 0): (1, 5)}])
    found = compare_operator(store.parts, before, redescribed(after, aggregates=[]), "totals")
    assert found.notes == ("its definition has changed",)
    assert counts(found) == (0, 0, 0, 1)


def with_rows_of(manifest: CheckpointManifest, position: int, segment: SegmentRef):
    """Return the checkpoint with these rows in that entry."""
    entries = list(manifest.subtasks)
    entries[position] = entries[position].model_copy(update={"segments": (segment,)})
    return manifest.model_copy(update={"subtasks": tuple(entries)})


def test_a_key_that_has_another_name_cannot_be_compared(store):
    before = write_windows(store, 1, [{("a", 0): (1, 5)}], parallelism=1)
    after = write_windows(store, 2, [{("a", 0): (1, 5), ("b", 0): (1, 5)}], parallelism=1)
    table = store.parts.read_state(before.subtasks[1].segments[0]).rename_columns(
        {"merchant": "shop"}
    )
    description = {**DESCRIPTIONS["totals"], "keys": ["shop"]}
    renamed = with_rows_of(before, 1, store.parts.write_state(CheckpointId(3), "totals", 0, table))
    descriptions = {**DESCRIPTIONS, "totals": description}
    renamed = renamed.model_copy(update={"operators_description": descriptions})
    found = compare_operator(store.parts, renamed, after, "totals")
    assert found.notes == (
        "its definition has changed",
        "its key merchant has changed: it had 1 rows and has 2",
    )
    assert found.parts == ()


def test_structs_are_compared_like_other_keys(store):
    of = pa.struct([("shop", pa.int64()), ("city", pa.string())])
    keys = [{"shop": 1, "city": "x"}, None, {"shop": None, "city": None}]
    manifest = write_windows(store, 1, [], parallelism=1)
    rows = [
        pa.table(
            {
                "key_group": pa.array([0, 0], pa.int32()),
                "merchant": pa.array(keys[first : first + 2], of),
                "window_start": pa.array([0, 0], pa.timestamp("us", "UTC")),
                "count(*)": [1, 1 + first],
                "sum(amount)": [1, 2],
            }
        )
        for first in (0, 1)
    ]
    before, after = (
        with_rows_of(manifest, 1, store.parts.write_state(CheckpointId(n), "totals", 0, table))
        for n, table in enumerate(rows, 3)
    )
    found = compare_operator(store.parts, before, after, "totals")
    assert (found.notes, counts(found)) == ((), (1, 1, 1, 0))


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (pa.array([["x"], []]), "list<item: string>"),
        (pa.array([None, b"a" * 16], pa.uuid()), "extension<arrow.uuid>"),
    ],
)
def test_rows_without_a_key_and_with_values_that_can_be_none_are_counted(store, column, what):
    manifest = write_windows(store, 1, [], parallelism=1)
    segment = store.parts.write_state(CheckpointId(3), "out", 0, pa.table({"tags": column}))
    found = compare_operator(store.parts, manifest, with_rows_of(manifest, 2, segment), "out")
    assert found.notes == (f"its rows have no key, and tags is a {what}: it had 0 rows and has 2",)


KEYS = st.tuples(st.sampled_from("abcdef"), st.sampled_from([0, 10]))
PANES = st.dictionaries(KEYS, st.tuples(st.integers(1, 3), st.integers(-3, 3)))


@settings(max_examples=drawn(25), deadline=None)
@given(
    st.lists(PANES, max_size=3), st.lists(PANES, max_size=3), st.integers(1, 3), st.integers(1, 3)
)
def test_any_two_checkpoints(first, second, workers_then, workers_now):
    store = open_job()
    claim(store)
    before = write_windows(store, 1, first, parallelism=workers_then)
    after = write_windows(store, 2, second, parallelism=workers_now)
    old, new = map(added_up, (first, second))
    both = old.keys() & new.keys()
    assert counts(compare_operator(store.parts, before, after, "totals")) == (
        len(new.keys() - old.keys()),
        len(old.keys() - new.keys()),
        sum(old[key] != new[key] for key in both),
        sum(old[key] == new[key] for key in both),
    )


def added_up(cuts: list[Panes]) -> dict[tuple[str, int], tuple[int, int]]:
    total: dict[tuple[str, int], tuple[int, int]] = {}
    for panes in cuts:
        for key, (count, amount) in panes.items():
            known = total.get(key, (0, 0))
            total[key] = known[0] + count, known[1] + amount
    return total


def test_tables_are_compared_by_their_names_and_keys():
    store = open_job()
    before = write_join(store, 1, {"a": (1, 5), "b": (2, 9)}, {"a": "x"}, expired_us=0)
    after = write_join(store, 2, {"a": (1, 5), "b": (3, 9)}, {"a": "y"}, expired_us=5)
    left, right = (
        compare_operator(store.parts, before, after, "join", table) for table in ("left", "right")
    )
    assert (left.table, counts(left)) == ("left", (0, 1, 1, 0)), "one has expired"
    assert counts(right) == (1, 1, 0, 0), "a key may have several rows"
    assert left.notes == right.notes == ()
