"""A manifest comes back from its stored form; forged ones are refused in one line."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from laminar_core.errors import ConfigurationError, CorruptCheckpointError
from laminar_core.records import event_times, inflight_parts
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.seal import unseal
from laminar_core.records.stored_manifest import StoredManifest
from tests.records.manifests import alignment, edge, folded, inflight, manifest, unaligned

Change = Callable[[dict[str, Any]], None]


def forged(change: Change, made: CheckpointManifest | None = None) -> bytes:
    record = json.loads(unseal((made or folded()).to_bytes()))
    change(record)
    return json.dumps(record).encode()


@pytest.mark.parametrize("made", [manifest(), unaligned(), folded(), manifest(alignment=())])
def test_a_manifest_comes_back_as_it_was(made: CheckpointManifest) -> None:
    assert parse_manifest(made.to_bytes()) == made
    assert StoredManifest.of(made).alignment == tuple(
        entry.model_copy(update={"channels": ()}) for entry in made.alignment
    )


def test_equal_manifests_give_equal_bytes_in_whatever_order_their_parts_are() -> None:
    made = folded()
    mixed = made.model_copy(update={"inflight_data": made.inflight_data[::-1]})
    assert mixed.to_bytes() == made.to_bytes()


def test_data_in_flight_is_in_the_order_of_the_vertices_and_then_by_channel() -> None:
    number = count()
    parts = [
        inflight(edge=edge(downstream=vertex), sender=sender, path=f"{next(number)}.buf")
        for sender in (1, 0)
        for vertex in ("keyed", "before")
    ]
    vertices = tuple(alignment(vertex_id=v, mode="unaligned") for v in ("before", "keyed"))
    made = unaligned(alignment=vertices, inflight_data=tuple(parts))
    found = parse_manifest(made.to_bytes()).inflight_data
    assert found == (parts[3], parts[1], parts[2], parts[0])


def times(index: int, **changes: Any) -> Change:
    return lambda record: record["event_times"][index].update(changes)


def columns(file: int, **changes: Any) -> Change:
    return lambda record: record["inflight_files"][file]["parts"][0].update(changes)


def fields(**changes: Any) -> Change:
    return lambda record: record.update(changes)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (times(1, receivers=[[0, 1], [1, 3]]), "event_times.1.receivers: .*overlap"),
        (times(1, receivers=[[1, 0], [3, 3]]), "event_times.1.receivers: .*ends before it begins"),
        (times(1, receivers=[[-1, 0], [3, 3]]), "event_times.1.receivers.0.0: .*equal to 0"),
        (times(1, receivers=[[0, 10**30], [3, 3]]), "event_times.1.receivers.0.1: "),
        (times(1, receivers=[[0, 2**62], [2**62 + 1, 2**63 - 1]]), "is the most that is read"),
        (times(1, receivers=[[0, 1], [3, 4]]), "unknown subtasks: keyed 3 to 4"),
        (times(1, vertex_id="gone"), "unknown subtasks: gone 0 to 1"),
        (times(2, input_id=1), "event times of channel 1 of keyed: ranges overlap"),
        (times(3, receivers=[[0, 3]]), "event times of channel 2 of keyed: ranges overlap"),
        (times(1, watermark_us=[7]), "event_times.1: .*2 ranges of receivers have 1 times"),
        (times(1, watermark_us=[7, 2**63]), "event_times.1.watermark_us.1: "),
        (columns(0, peers=[[0, 2**63 - 1]]), r"inflight_files.0.parts.0: .* have columns of \[3\]"),
        (columns(0, peers=[[0, 1], [1, 1]]), "inflight_files.0.parts.0.peers: .*overlap"),
        (columns(0, offset=[0, 100]), r"inflight_files.0.parts.0: .* have columns of \[2, 3\]"),
        (columns(0, offset=[0, 5, 300]), "overlaps with another part of .*inflight_0.buf"),
        (columns(0, offset=[0, 100, 301]), "is behind the end of .*inflight_0.buf"),
        (columns(0, subtask_index=1), "one queue has several parts"),
        (columns(0, subtask_index=9), "in-flight data of unknown subtasks"),
        (lambda r: r["inflight_files"][0].update(parts=[]), "files without parts"),
        (lambda r: r["inflight_files"].append(r["inflight_files"][0]), "listed twice"),
        (lambda r: r["inflight_files"][0].pop("parts"), "inflight_files.0.parts: Field required"),
        (lambda r: r["inflight_files"][0].update(path="../x"), "inflight_files.0"),
        (fields(inflight_data=[inflight().model_dump()]), "parts in their files"),
        (lambda r: r["alignment"][0].update(channels=[{}]), "alignment.0.channels.0"),
        (lambda r: r["alignment"].append(r["alignment"][0]), "a subtask is listed twice"),
        (fields(mode="aligned", is_unaligned=False), "the mode is aligned but the parts say"),
        (fields(event_times=None), "event_times: "),
    ],
)
def test_a_forged_manifest_is_refused_in_one_line(change: Change, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem) as caught:
        parse_manifest(forged(change))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_channels_are_only_where_they_are_folded() -> None:
    channel = folded().alignment[0].channels[0].model_dump()
    with pytest.raises(CorruptCheckpointError, match="channels are in event_times"):
        parse_manifest(forged(lambda r: r["alignment"][0].update(channels=[channel])))


def test_channels_and_files_may_be_without_anything() -> None:
    made = parse_manifest(forged(fields(event_times=[]), manifest()))
    assert [entry.channels for entry in made.alignment] == [()]


def test_parts_and_channels_are_counted_before_they_are_spelled_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = folded().to_bytes()
    assert len(parse_manifest(written).inflight_data) == 7
    monkeypatch.setattr(inflight_parts, "ITEMS_MAX", 6)
    with pytest.raises(CorruptCheckpointError, match="7 parts in files, and 6 is the most"):
        parse_manifest(written)
    with pytest.raises(ConfigurationError, match=r"7 parts in files, and 6 .* fewer subtasks"):
        folded().to_bytes()
    monkeypatch.undo()
    monkeypatch.setattr(event_times, "CHANNELS_MAX", 10)
    with pytest.raises(CorruptCheckpointError, match="times of 11 channels, and 10 is the most"):
        parse_manifest(written)
    with pytest.raises(ConfigurationError, match="times of 11 channels, and 10 is the most"):
        folded().to_bytes()
