"""From any number of workers to any other: everything has an owner, and what has one has one."""

from collections import Counter
from itertools import product

import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_group_range, key_groups_of, subtask_of
from laminar_core.state.rescaling import Exchange, Rescaling, deal

PAIRS = list(product(range(1, 9), repeat=2))
KEY_GROUPS = (8, 100, 128)


def rescalings(before: int, after: int) -> list[Rescaling]:
    return [Rescaling(before, after, key_groups) for key_groups in KEY_GROUPS]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_key_group_comes_to_its_owner_and_nobody_reads_in_vain(before, after) -> None:
    for rescaling in rescalings(before, after):
        groups = rescaling.max_parallelism
        for subtask in range(after):
            owned = set(key_group_range(subtask, groups, after))
            read = [
                owned & set(key_group_range(old, groups, before))
                for old in rescaling.origins("keyed", subtask)
            ]
            assert all(read)
            assert set().union(*read) == owned


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_what_is_split_has_one_new_owner_and_what_is_united_has_all(before, after) -> None:
    rescaling = Rescaling(before, after, 128)
    split = Counter(old for new in range(after) for old in rescaling.origins("split", new))
    assert split == Counter(range(before))
    for new in range(after):
        assert rescaling.origins("union", new) == list(range(before))


@pytest.mark.parametrize(("before", "after"), PAIRS)
@pytest.mark.parametrize("exchange", ["keyed", "rebalance", "broadcast", "forward"])
def test_every_new_receiver_takes_over_from_some_old_one(exchange: Exchange, before, after) -> None:
    """It has to know where event time stands; and no old receiver's queues are forgotten."""
    for rescaling in rescalings(before, after):
        origins = [rescaling.origins_of_receiver(exchange, new) for new in range(after)]
        assert all(origins)
        assert all(of == sorted(set(of)) for of in origins)
        assert {old for of in origins for old in of} == set(range(before))


def rows_for(receiver: int, before: int, key_groups: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that an old sender put on its channel to an old receiver."""
    owned = key_group_range(receiver, key_groups, before)
    groups = key_groups_of(rows, ["key"], key_groups)
    return rows.filter(pa.array((groups >= owned.start) & (groups < owned.stop)))


ROWS = pa.record_batch({"key": [f"k{n}" for n in range(80)], "n": list(range(80))})


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_row_in_flight_on_a_keyed_edge_has_one_owner_the_one_of_its_key(before, after) -> None:
    for rescaling in rescalings(before, after):
        owners: Counter[int] = Counter()
        for new, old in product(range(after), range(before)):
            if old not in rescaling.origins_of_receiver("keyed", new):
                continue
            batch = rows_for(old, before, rescaling.max_parallelism, ROWS)
            own = rescaling.owned_by(["key"], new)(batch)
            if own is None:
                continue
            numbers = own.column("n").to_pylist()
            assert numbers == sorted(numbers)
            owners.update(numbers)
            groups = key_groups_of(own, ["key"], rescaling.max_parallelism)
            assert {subtask_of(int(g), rescaling.max_parallelism, after) for g in groups} == {new}
        assert owners == Counter(range(80))


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_batch_in_flight_on_a_rebalanced_edge_has_one_owner(before, after) -> None:
    rescaling = Rescaling(before, after, 128)
    owners: Counter[tuple[int, int]] = Counter()
    shares: Counter[int] = Counter()
    for new in range(after):
        for old in rescaling.origins_of_receiver("rebalance", new):
            own = rescaling.dealt_to(new)
            for number in range(16):
                if own(ROWS) is not None:
                    owners[old, number] += 1
                    shares[new] += 1
    assert owners == Counter(product(range(before), range(16)))
    if before <= after:
        assert max(shares.values()) <= 2 * min(shares[new] for new in range(after))


def test_the_same_number_of_workers_changes_nothing() -> None:
    for before in range(1, 9):
        rescaling = Rescaling(before, before, 128)
        for subtask in range(before):
            assert rescaling.origins("keyed", subtask) == [subtask]
            assert rescaling.origins("split", subtask) == [subtask]
            assert rescaling.origins_of_receiver("rebalance", subtask) == [subtask]


@pytest.mark.parametrize("parallelism", range(1, 9))
@pytest.mark.parametrize("splits", [0, 1, 5, 12])
def test_every_split_is_dealt_once_in_order_and_those_with_rows_evenly(parallelism, splits) -> None:
    unread = [n % 3 != 0 for n in range(splits)]
    dealt = [deal(unread, parallelism, subtask) for subtask in range(parallelism)]
    assert sorted(n for of in dealt for n in of) == list(range(splits))
    assert all(of == sorted(of) for of in dealt)
    loads = [sum(unread[n] for n in of) for of in dealt]
    assert max(loads) - min(loads) <= 1


def test_on_a_fresh_start_splits_are_dealt_round_robin() -> None:
    assert [deal([True] * 5, 2, subtask) for subtask in range(2)] == [[0, 2, 4], [1, 3]]
