"""Parts of in-flight files fold into columns, and nothing of them is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.inflight_parts import (
    InflightFile,
    InflightParts,
    folded_files,
    unfolded_parts,
)
from tests.records.manifests import DIGEST, edge, files_of, inflight

EDGES = (edge(), edge(input_index=1), edge(downstream="loop", feedback=True))


@st.composite
def any_parts(draw: st.DrawFn) -> list[InflightEntry]:
    """Parts of some queues in two files, in any order in them, some with bytes in between."""
    queues = st.tuples(
        st.sampled_from(EDGES), st.sampled_from(["input", "output"]), *[st.integers(0, 5)] * 2
    )
    found: list[InflightEntry] = []
    ends = {"a.buf": 0, "b.buf": 0}
    for on, direction, owner, peer in draw(st.lists(queues, unique=True, max_size=20)):
        path = draw(st.sampled_from(sorted(ends)))
        ends[path] += draw(st.sampled_from([0, 0, 7]))
        sender, receiver = (peer, owner) if direction == "input" else (owner, peer)
        found.append(
            inflight(
                path=path,
                offset=ends[path],
                size_bytes=draw(st.integers(1, 9)),
                sha256=draw(st.sampled_from([DIGEST, "0" * 64])),
                operator_id=draw(st.sampled_from(["one", "two"])),
                direction=direction,
                subtask_index=owner,
                input_id=peer + draw(st.sampled_from([0, 0, 0, 4])),
                edge=on,
                sender=sender,
                receiver=receiver,
                event_count=draw(st.integers(0, 9)),
                row_count=draw(st.integers(0, 9)),
            )
        )
        ends[path] = found[-1].end
    return found


@given(any_parts())
def test_what_is_folded_comes_back_by_channel(parts: list[InflightEntry]) -> None:
    files = tuple(folded_files(files_of(*parts), parts))
    vertices = ["keyed", "loop"]
    assert [(f.path, f.size_bytes) for f in files] == [
        (f.path, f.size_bytes) for f in files_of(*parts)
    ]
    assert unfolded_parts(files, vertices) == tuple(
        sorted(parts, key=lambda e: (vertices.index(e.edge.downstream), e.queue))
    )
    read = [InflightFile.model_validate_json(file.model_dump_json()) for file in files]
    assert unfolded_parts(read, vertices) == unfolded_parts(files, vertices)


def test_the_names_of_many_channels_are_written_once() -> None:
    parts = [
        inflight(sender=n, input_id=3 + n, offset=99 * n, path="a.buf") for n in (0, 1, 2, 5, 6)
    ]
    (file,) = folded_files(files_of(*parts), parts)
    (columns,) = file.parts
    assert (columns.peers, columns.input_id) == (((0, 2), (5, 6)), 3)
    assert columns.offset == (0, 99, 198, 495, 594)


def test_a_vertex_that_is_not_listed_comes_last() -> None:
    parts = [
        inflight(edge=edge(downstream=name), offset=99 * n, path="a.buf")
        for n, name in enumerate(("z", "a", "m"))
    ]
    files = list(folded_files(files_of(*parts), parts))
    found = unfolded_parts(files, ["m", "m"])
    assert [entry.edge.downstream for entry in found] == ["m", "a", "z"]


def test_a_part_in_a_file_that_is_not_listed_is_never_dropped() -> None:
    with pytest.raises(ValueError, match=r"not listed: \['b\.buf'\]"):
        list(folded_files(files_of(inflight(path="a.buf")), [inflight(path="b.buf")]))


def columns(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "operator_id": "window",
        "direction": "input",
        "subtask_index": 0,
        "edge": edge().model_dump(),
        "peers": [[0, 1]],
        "input_id": 0,
        "offset": [0, 9],
        "size_bytes": [9, 9],
        "sha256": [DIGEST, DIGEST],
        "event_count": [1, 1],
        "row_count": [1, 1],
    }
    return json.dumps(fields | changes).encode()


def test_what_laminar_writes_is_accepted() -> None:
    assert len(list(InflightParts.model_validate_json(columns()).entries("a.buf"))) == 2


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"peers": [[0, 2]]}, r"3 parts have columns of \[2\]"),
        ({"peers": [[0, 2**63 - 1]]}, r"9223372036854775808 parts have columns of \[2\]"),
        ({"peers": [[0, 2**63]]}, "less than or equal to"),
        ({"peers": [[1, 0], [2, 3]]}, "ends before it begins"),
        ({"peers": [[0, 0], [0, 0]]}, "overlap"),
        ({"peers": [[-1, 0]]}, "greater than or equal to 0"),
        ({"offset": [0]}, r"2 parts have columns of \[1, 2\]"),
        ({"size_bytes": [9, 9, 9]}, r"2 parts have columns of \[2, 3\]"),
        ({"sha256": []}, r"2 parts have columns of \[0, 2\]"),
        ({"event_count": [1]}, r"2 parts have columns of \[1, 2\]"),
        ({"row_count": [1]}, r"2 parts have columns of \[1, 2\]"),
        ({"size_bytes": [9, 0]}, "greater than or equal to 1"),
        ({"size_bytes": [9, 2**41]}, "less than or equal to"),
        ({"offset": [0, -1]}, "greater than or equal to 0"),
        ({"offset": [0, 2**41]}, "less than or equal to"),
        ({"event_count": [1, -1]}, "greater than or equal to 0"),
        ({"row_count": [1, 2**63]}, "less than or equal to"),
        ({"sha256": [DIGEST, "0" * 63]}, "should match pattern"),
        ({"input_id": 2**63 - 1}, "a number of more than 64 bits"),
        ({"direction": "both"}, "'input' or 'output'"),
    ],
)
def test_others_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        InflightParts.model_validate_json(columns(**changes))


def test_columns_have_a_part() -> None:
    names = ("peers", "offset", "size_bytes", "sha256", "event_count", "row_count")
    with pytest.raises(ValidationError, match="there are no parts"):
        InflightParts.model_validate_json(columns(**{name: [] for name in names}))
