"""The benchmark of manifests folds without loss, and counts only what a worker restores from."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.manifest_size import (
    deployment_of,
    manifest_of,
    runs_across_receivers,
    runs_within_receivers,
)
from laminar_core.records.manifest import AlignmentEntry, ChannelEntry
from tests.records.manifests import alignment

TIMES = st.tuples(st.sampled_from([None, 1, 2]), st.booleans())


@st.composite
def entries(draw: st.DrawFn) -> list[AlignmentEntry]:
    """Two vertices with up to four subtasks; a channel may be missing, as in loops."""
    return [
        alignment(
            vertex_id=vertex_id,
            subtask_index=index,
            channels=tuple(
                ChannelEntry(input_id=n, watermark_us=time_us, idle=idle)
                for n, (time_us, idle) in sorted(
                    draw(st.dictionaries(st.integers(0, 5), TIMES)).items()
                )
            ),
        )
        for vertex_id in ("a", "b")
        for index in range(draw(st.integers(1, 4)))
    ]


def listed(found: list[AlignmentEntry]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (e.vertex_id, e.subtask_index, c.input_id, c.watermark_us, c.idle)
            for e in found
            for c in e.channels
        ),
        key=str,
    )


def unfolded(runs: list[dict[str, Any]], along: str) -> list[tuple[Any, ...]]:
    spelled = [
        {**run, along: number}
        for run in runs
        for number in range(run["first"], run["first"] + run["count"])
    ]
    names = ("vertex_id", "subtask_index", "input_id", "watermark_us", "idle")
    return sorted((tuple(each[name] for name in names) for each in spelled), key=str)


@given(entries())
def test_both_folds_have_every_channel_once(found: list[AlignmentEntry]) -> None:
    assert unfolded(runs_within_receivers(found), "input_id") == listed(found)
    assert unfolded(runs_across_receivers(found), "subtask_index") == listed(found)


def test_what_all_receivers_have_seen_is_one_run_per_sender() -> None:
    times = manifest_of(4, unaligned=False).alignment
    assert len(runs_within_receivers(times)) == 16
    assert len(runs_across_receivers(times)) == 4


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_start_has_what_the_manifest_has(workers: int, *, unaligned: bool) -> None:
    whole = manifest_of(3, unaligned=unaligned)
    parts = [own.restored for own in deployment_of(whole, workers).of_workers()]
    in_flight = [entry for part in parts if part is not None for entry in part.inflight_data]
    subtasks = [entry for part in parts if part is not None for entry in part.subtasks]
    assert set(in_flight) == set(whole.inflight_data)
    assert all(entry in subtasks for entry in whole.subtasks)
