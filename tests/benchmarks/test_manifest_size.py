"""The benchmark of manifests measures real ones, and counts only what a worker restores from."""

import pytest

from benchmarks.manifest_size import deployment_of, manifest_of, size_and_time


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_manifest_is_measured_as_it_is_written_and_as_it_was(*, unaligned: bool) -> None:
    manifest = manifest_of(8, unaligned=unaligned)
    measured = {each.name: each.value for each in size_and_time("m", manifest, rounds=1)}
    assert measured["m_bytes"] == len(manifest.to_bytes())
    assert measured["m_entries_bytes"] > (2 if unaligned else 1.5) * measured["m_bytes"]
    assert measured["m_values"] < measured["m_entries_values"]


def test_what_all_receivers_have_seen_is_one_range_per_sender() -> None:
    aligned, unaligned = (
        [len(manifest_of(n, unaligned=unaligned).to_bytes()) for n in (4, 8, 16)]
        for unaligned in (False, True)
    )
    assert aligned[2] - aligned[1] < 2.1 * (aligned[1] - aligned[0])
    assert unaligned[2] - unaligned[1] > 2.1 * (unaligned[1] - unaligned[0])


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_start_has_what_the_manifest_has(workers: int, *, unaligned: bool) -> None:
    whole = manifest_of(3, unaligned=unaligned)
    parts = [own.restored for own in deployment_of(whole, workers).of_workers()]
    in_flight = [entry for part in parts if part is not None for entry in part.inflight_data]
    subtasks = [entry for part in parts if part is not None for entry in part.subtasks]
    assert set(in_flight) == set(whole.inflight_data)
    assert all(entry in subtasks for entry in whole.subtasks)
