import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.records.segment import SegmentRef
from laminar_core.state.segment_chain import (
    MERGED_BYTES_MAX,
    RUN_SEGMENT_BYTES_MIN,
    merging_ranges,
    open_segments,
    plan_compaction,
    replaced,
    runs_of,
)
from tests.records.manifests import file_ref


def segment(name: str, newest_us: int | None = None) -> SegmentRef:
    return file_ref(f"shared/window/{name}.seg").model_copy(update={"newest_window_us": newest_us})


A, B, C, D, E = (segment(name, 10 * n) for n, name in enumerate("abcde"))


def test_segments_of_which_every_window_has_fired_are_dropped() -> None:
    ageless = segment("x")
    assert open_segments([A, B, ageless, C], 10) == (ageless, C)
    assert open_segments([A, B, ageless, C], 9) == (B, ageless, C)
    assert open_segments([A, B], None) == (A, B)


@pytest.mark.parametrize(
    ("sizes", "planned"),
    [
        ([], None),
        ([5, 5, 5], None),
        ([100, 1, 1, 1], range(1, 4)),
        ([1, 1, 1, 1], range(4)),
        ([50, 40, 7, 2], range(2, 4)),
        ([50, 8, 7, 2], range(1, 4)),
        ([100, 0, 0, 0], range(2, 4)),
    ],
)
def test_small_neighbours_at_the_end_are_merged(sizes, planned) -> None:
    assert plan_compaction(sizes, 3) == planned


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(2, 8))
def test_a_plan_is_a_run_at_the_end_and_shortens_the_chain(sizes, segments_max) -> None:
    planned = plan_compaction(sizes, segments_max)
    if planned is None:
        assert len(sizes) <= segments_max
    else:
        assert planned.stop == len(sizes)
        assert len(planned) >= 2


@pytest.mark.parametrize(("segments_max", "times"), [(4, 60), (8, 14), (16, 7)])
def test_chains_stay_short_and_rows_are_not_rewritten_too_often(segments_max, times) -> None:
    """The worst case: nothing that comes is ever the same key."""
    chain, rewritten, longest = [1_000_000], 0, 0
    for _ in range(4_096):
        chain.append(1_000)
        while (run := plan_compaction(chain, segments_max)) is not None:
            merged = sum(chain[run.start :])
            rewritten += merged
            chain[run.start :] = [merged]
        longest = max(longest, len(chain))
    assert longest <= segments_max
    assert sum(chain) == 1_000_000 + 4_096 * 1_000
    assert rewritten < times * 4_096 * 1_000


def test_what_was_merged_takes_the_place_of_its_parts() -> None:
    assert replaced([A, B, C, D], [B, C], [E]) == (A, E, D)
    assert replaced([A, B, C], [A, B], []) == (C,)


def test_parts_that_were_dropped_meanwhile_do_not_come_back() -> None:
    assert replaced([B, C, D], [A, B], [E]) == (E, C, D)
    assert replaced([C, D], [A, B], [E]) == (C, D)


def of_groups(start: int, stop: int, size_bytes: int = RUN_SEGMENT_BYTES_MIN) -> SegmentRef:
    changes = {"key_groups": (start, stop), "size_bytes": size_bytes}
    return segment(f"{start}-{stop}").model_copy(update=changes)


def test_a_run_is_segments_without_a_common_key_group() -> None:
    base = [of_groups(0, 5), of_groups(5, 6), of_groups(8, 20)]
    changes = [of_groups(0, 10), of_groups(10, 20)]
    assert runs_of([*base, *changes, of_groups(19, 20)]) == [range(3), range(3, 5), range(5, 6)]
    assert runs_of([]) == []


def test_small_segments_are_runs_of_their_own_or_a_chain_of_them_could_be_long() -> None:
    chain = [of_groups(n, n + 1, RUN_SEGMENT_BYTES_MIN - 1) for n in range(4)]
    assert len(runs_of(chain)) == 4


def test_segments_of_unknown_key_groups_are_runs_of_their_own() -> None:
    assert len(runs_of([of_groups(0, 5), A, of_groups(5, 6)])) == 3


@pytest.mark.parametrize("parts", [2, 5, 500])
def test_much_is_merged_range_by_range(parts: int) -> None:
    size_bytes = parts * MERGED_BYTES_MAX // 2
    ranges = merging_ranges([of_groups(64, 128, size_bytes), of_groups(70, 90, size_bytes)])
    assert ranges is not None
    assert [group for groups in ranges for group in groups] == list(range(64, 128))
    assert len(ranges) == min(parts, 64)


def test_little_is_merged_at_once_and_so_is_what_says_nothing_of_key_groups() -> None:
    assert merging_ranges([of_groups(0, 9), of_groups(0, 9)]) is None
    large = of_groups(0, 9, 9 * MERGED_BYTES_MAX)
    assert merging_ranges([large, A]) is None
