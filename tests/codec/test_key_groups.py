"""Key groups: evenly filled, contiguous per subtask, and the same in every process."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.key_groups import (
    MAX_PARALLELISM_LIMIT,
    key_group_order,
    key_group_range,
    key_groups,
    key_groups_of,
    partition,
    subtask_of,
)
from laminar_core.errors import ConfigurationError, ErrorCode

SHAPES = st.integers(1, 300).flatmap(
    lambda groups: st.tuples(st.just(groups), st.integers(1, groups))
)


@settings(deadline=None)
@given(SHAPES)
def test_ranges_partition_the_key_groups_as_subtask_of_says(shape: tuple[int, int]) -> None:
    """Goal: I1 and I2."""
    max_parallelism, parallelism = shape
    owners = [
        subtask
        for subtask in range(parallelism)
        for _ in key_group_range(subtask, max_parallelism, parallelism)
    ]
    groups = [g for s in range(parallelism) for g in key_group_range(s, *shape)]
    assert groups == list(range(max_parallelism))
    assert owners == [subtask_of(g, max_parallelism, parallelism) for g in groups]
    assert set(owners) == set(range(parallelism)), "no subtask is without key groups"


@pytest.mark.parametrize(
    ("subtask", "owned"), [(0, range(43)), (1, range(43, 86)), (2, range(86, 128))]
)
def test_three_subtasks_share_128_groups(subtask: int, owned: range) -> None:
    assert key_group_range(subtask, 128, 3) == owned


@pytest.mark.parametrize(
    ("hash_value", "group"),
    [(0, 0), (2**57 - 1, 0), (2**57, 1), (2**63, 64), (2**64 - 1, 127)],
)
def test_the_group_is_the_upper_bits_scaled(hash_value: int, group: int) -> None:
    assert key_groups(np.array([hash_value], np.uint64), 128).tolist() == [group]


@pytest.mark.parametrize("max_parallelism", [1, 3, 100, 128, MAX_PARALLELISM_LIMIT])
def test_groups_stay_below_their_number(max_parallelism: int) -> None:
    hashes = np.array([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)
    groups = key_groups(hashes, max_parallelism)
    assert groups.tolist() == [(int(h) >> 32) * max_parallelism >> 32 for h in hashes]


@pytest.mark.parametrize("keys", [[str(i) for i in range(12_800)], list(range(12_800))])
def test_consecutive_keys_fill_the_groups_evenly(keys: list) -> None:
    batch = pa.record_batch({"key": pa.array(keys)})
    counts = np.bincount(key_groups_of(batch, ["key"], 128), minlength=128)
    assert counts.min() > 60  # 100 on average, standard deviation 10.
    assert counts.max() < 140


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism", "says"),
    [
        (0, 128, "parallelism must be in 1..128"),
        (129, 128, "parallelism must be in 1..128"),
        (-1, 128, "parallelism must be in 1..128"),
        (1, 0, "max_parallelism must be in 1..32768"),
        (1, 32_769, "max_parallelism must be in 1..32768"),
    ],
)
def test_an_impossible_parallelism_is_refused(
    parallelism: int, max_parallelism: int, says: str
) -> None:
    batch = pa.record_batch({"key": [1]})
    for call in (
        lambda: subtask_of(0, max_parallelism, parallelism),
        lambda: key_group_range(0, max_parallelism, parallelism),
        lambda: partition(batch, ["key"], max_parallelism, parallelism),
    ):
        with pytest.raises(ConfigurationError, match=says) as caught:
            call()
        assert caught.value.code is ErrorCode.UNSUPPORTED_PARALLELISM


def test_a_subtask_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no subtask 2"):
        key_group_range(2, 128, 2)


@settings(deadline=None)
@given(
    keys=st.lists(st.none() | st.sampled_from("abcdefgh"), max_size=60),
    parallelism=st.integers(1, 9),
)
def test_partition_sends_every_row_to_its_owner_in_order(keys: list, parallelism: int) -> None:
    batch = pa.record_batch({"key": pa.array(keys, pa.string()), "row": range(len(keys))})
    groups = key_groups_of(batch, ["key"], 128)
    owned: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        owned.setdefault(subtask_of(group, 128, parallelism), []).append(row)
    parts = partition(batch, ["key"], 128, parallelism)
    assert [(s, part.column("row").to_pylist()) for s, part in parts] == sorted(owned.items())
    for _, part in parts:
        assert part.column("key").to_pylist() == [keys[r] for r in part.column("row").to_pylist()]


@pytest.mark.parametrize("parallelism", [2, 255, 256, 257, 1_000])
def test_many_subtasks_get_the_same_rows_as_one_by_one(parallelism: int) -> None:
    """Goal: subtasks are sorted as numbers of one byte up to 256 of them, and of two beyond."""
    batch = pa.record_batch({"key": range(5_000), "row": range(5_000)})
    groups = key_groups_of(batch, ["key"], 2_000).tolist()
    parts = partition(batch, ["key"], 2_000, parallelism)
    assert [subtask for subtask, _ in parts] == sorted({s for s, _ in parts})
    assert sum(part.num_rows for _, part in parts) == 5_000
    for subtask, part in parts:
        rows = part.column("row").to_pylist()
        assert rows == sorted(rows)
        assert {subtask_of(groups[row], 2_000, parallelism) for row in rows} == {subtask}


def test_dictionary_keys_go_where_plain_keys_go() -> None:
    plain = pa.array([f"merchant-{i % 17}" for i in range(100)])
    for parallelism in (2, 3, 8):
        parts = [
            [
                (s, p.column("key").to_pylist())
                for s, p in partition(batch, ["key"], 128, parallelism)
            ]
            for batch in (
                pa.record_batch({"key": plain}),
                pa.record_batch({"key": plain.dictionary_encode()}),
            )
        ]
        assert parts[0] == parts[1]


def test_a_single_subtask_gets_the_batch_itself() -> None:
    batch = pa.record_batch({"key": [1, 2, 3]})
    [(subtask, part)] = partition(batch, ["key"], 128, 1)
    assert (subtask, part is batch) == (0, True)


def test_without_keys_everything_goes_to_the_first_subtask() -> None:
    batch = pa.record_batch({"value": [1, 2, 3]})
    assert partition(batch, [], 128, 4) == [(0, batch)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_empty_batch_has_no_parts(parallelism: int) -> None:
    batch = pa.record_batch({"key": pa.array([], pa.int64())})
    assert partition(batch, ["key"], 128, parallelism) == []


@given(st.lists(st.integers(0, MAX_PARALLELISM_LIMIT - 1)))
def test_rows_are_sorted_by_key_group_and_stay_in_order_within_it(groups: list[int]) -> None:
    order = key_group_order(np.array(groups, np.int32))
    assert order.tolist() == sorted(range(len(groups)), key=groups.__getitem__)
