import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.protocol.edges import PartitioningKind
from laminar_core.records.channel_entries import EdgeEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_fields import CarriedOperator, DiscoveryEntry
from laminar_core.records.manifest_versions import parse_manifest
from tests.records.manifests import (
    DESCRIPTIONS,
    DIGEST,
    edge,
    file_ref,
    folded,
    inflight,
    manifest,
    subtask,
    unaligned,
)

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST_EVER = (GOLDEN / "manifest_v1.json").read_bytes()


def incremental() -> CheckpointManifest:
    """Return a manifest of an incremental state, with segments of two earlier checkpoints."""
    base = file_ref("shared/window/0000000001-0-00000000.seg")
    segments = tuple(
        base.model_copy(update={"path": f"shared/window/{name}.seg", **changes})
        for name, changes in (
            ("0000000001-0-00000000", {"key_groups": (0, 64)}),
            ("0000000002-0-00000000", {"newest_window_us": 1_700_000_000_000_000}),
            ("0000000002-0-00000001", {"row_count": 1, "size_bytes": 9}),
        )
    )
    first, *rest = manifest().subtasks
    first = first.model_copy(update={"segments": segments, "written_bytes": 9})
    return manifest(subtasks=(first, *rest), imported_from="file:///savepoints/a")


def tables() -> CheckpointManifest:
    """Return a manifest of an operator with two tables; their columns differ, and both expire."""
    first, *rest = incremental().subtasks
    names = ("left", "left", "right")
    segments = tuple(
        segment.model_copy(update={"table": name})
        for name, segment in zip(names, first.segments, strict=True)
    )
    expired_us = {"left": 1_600_000_000_000_000, "right": -1}
    changed = first.model_copy(update={"segments": segments, "expired_us": expired_us})
    return manifest(subtasks=(changed, *rest))


def in_order(made: CheckpointManifest) -> CheckpointManifest:
    """Return the manifest with its parts in the order in which the driver lists them."""
    parts = sorted(made.inflight_data, key=lambda entry: entry.queue)
    return made.model_copy(update={"inflight_data": tuple(parts)})


def packed() -> CheckpointManifest:
    """Return a manifest of two queues in one file, and of one that has a file alone."""
    path = "checkpoints/0000000007/operators/inflight_"
    first = inflight(path=f"{path}0.buf", size_bytes=60)
    second = inflight(edge=edge(input_index=1), path=first.path, offset=60, size_bytes=40)
    alone = inflight(
        direction="output",
        subtask_index=1,
        input_id=0,
        path=f"{path}1.buf",
    )
    return unaligned(inflight_data=(first, second, alone))


FORMAT_2 = [("", manifest()), ("_unaligned", unaligned()), ("_incremental", incremental())]
"""Their descriptions name no inputs, so they have no edges."""

EDGES = (
    EdgeEntry(
        upstream="source", downstream="keyed", input_index=0, partitioning=PartitioningKind.KEYED
    ),
    EdgeEntry(
        upstream="rates", downstream="keyed", input_index=1, partitioning=PartitioningKind.BROADCAST
    ),
    EdgeEntry(
        upstream="source",
        downstream="retry",
        input_index=0,
        partitioning=PartitioningKind.REBALANCE,
    ),
    EdgeEntry(
        upstream="again",
        downstream="retry",
        input_index=1,
        partitioning=PartitioningKind.FORWARD,
        feedback=True,
        loop="retry",
    ),
)


DISCOVERY = {
    "window": DiscoveryEntry(
        state={"next": "2026-01-02", "seen": ["a.json", "b.json"]}, next_split_id=9, complete=False
    ),
    "sink": DiscoveryEntry(state={}, next_split_id=0, complete=True),
}
"""Any operators: nothing in a manifest says which of them are sources."""


CARRYING = manifest(
    parallelism={"window": 2, "sink": 2, "gone": 3},
    fingerprint={o: fingerprint_of(d) for o, d in (DESCRIPTIONS | {"gone": {}}).items()},
    operators_description=DESCRIPTIONS | {"gone": {}},
    subtasks=(*manifest().subtasks, *(subtask("gone", n) for n in range(3))),
    discovery={"gone": DISCOVERY["window"]},
    carried={"gone": CarriedOperator(source="gone", checkpoint_id=4)},
)
"""Three workers had the source that was removed; two are left."""


def with_edges(made: CheckpointManifest) -> CheckpointManifest:
    return made.model_copy(update={"edges": EDGES})


FORMAT_4 = [
    *((n, with_edges(m).model_copy(update={"discovery": DISCOVERY})) for n, m in FORMAT_2),
    ("_carried", CARRYING),
]


FORMAT_5 = [*FORMAT_4, ("_tables", tables())]
FORMAT_6 = [*FORMAT_5, ("_packed", packed())]


FORMAT_7 = [*FORMAT_5, ("_packed", in_order(packed())), ("_folded", folded())]


class TestGolden:
    """If one of them fails, checkpoints out there cannot be restored: add a version instead."""

    def test_format_1_is_read_for_ever(self):
        assert parse_manifest(FIRST_EVER) == manifest()

    @pytest.mark.parametrize("mode", ["unaligned", "switched"])
    def test_unaligned_checkpoints_of_format_1_are_read_for_ever(self, mode):
        data = (GOLDEN / f"manifest_v1_{mode}.json").read_bytes()
        assert parse_manifest(data) == unaligned(mode)

    @pytest.mark.parametrize(("name", "made"), FORMAT_2)
    def test_format_2_is_read_for_ever(self, name, made):
        assert parse_manifest((GOLDEN / f"manifest_v2{name}.json").read_bytes()) == made

    @pytest.mark.parametrize(("name", "made"), FORMAT_2)
    def test_format_3_is_read_for_ever(self, name, made):
        data = (GOLDEN / f"manifest_v3{name}.json").read_bytes()
        assert parse_manifest(data) == with_edges(made)

    @pytest.mark.parametrize(("name", "made"), FORMAT_4)
    def test_format_4_is_read_for_ever(self, name, made):
        assert parse_manifest((GOLDEN / f"manifest_v4{name}.json").read_bytes()) == made

    @pytest.mark.parametrize(("name", "made"), FORMAT_5)
    def test_format_5_is_read_for_ever(self, name, made):
        assert parse_manifest((GOLDEN / f"manifest_v5{name}.json").read_bytes()) == made

    @pytest.mark.parametrize(("name", "made"), FORMAT_6)
    def test_format_6_is_read_for_ever(self, name, made):
        assert parse_manifest((GOLDEN / f"manifest_v6{name}.json").read_bytes()) == made

    @pytest.mark.parametrize(("name", "made"), FORMAT_7)
    def test_format_7_is_read_for_ever_and_written_as_it_always_was(self, name, made):
        data = (GOLDEN / f"manifest_v7{name}.json").read_bytes()
        assert parse_manifest(data) == made
        assert made.to_bytes() == data

    def test_one_file_of_format_1_is_one_segment_all_of_it_written_then(self):
        entry = parse_manifest(FIRST_EVER).subtasks[0]
        assert [segment.row_count for segment in entry.segments] == [10]
        assert entry.written_bytes == entry.size_bytes == 1234

    def test_format_1_knows_nothing_of_what_came_later(self):
        for newer in ({"imported_from": None}, {"edges": []}, {"subtasks": [{"segments": []}]}):
            with pytest.raises(CorruptCheckpointError):
                parse_manifest(json.dumps(json.loads(FIRST_EVER) | newer).encode())

    def test_format_2_knows_no_edges(self):
        with pytest.raises(CorruptCheckpointError, match="edges came with format 3"):
            parse_manifest(json.dumps(as_format_2({}) | {"edges": []}).encode())

    def test_format_3_knows_no_discovery(self):
        older = json.loads((GOLDEN / "manifest_v3.json").read_bytes())
        del older["sha256"]
        for name in ("discovery", "carried"):
            with pytest.raises(CorruptCheckpointError, match=f"{name} came with format 4"):
                parse_manifest(json.dumps(older | {name: {}}).encode())

    def test_format_4_knows_one_table_without_a_name(self):
        older = json.loads((GOLDEN / "manifest_v4_incremental.json").read_bytes())
        del older["sha256"]
        parsed = parse_manifest(json.dumps(older).encode())
        assert {segment.table for entry in parsed.subtasks for segment in entry.segments} == {""}
        older["subtasks"][0]["segments"][0]["table"] = "left"
        with pytest.raises(CorruptCheckpointError, match="table came with format 5"):
            parse_manifest(json.dumps(older).encode())
        del older["subtasks"][0]["segments"][0]["table"]
        older["subtasks"][1]["expired_us"] = {}
        with pytest.raises(CorruptCheckpointError, match="expired_us came with format 5"):
            parse_manifest(json.dumps(older).encode())

    def test_format_5_knows_no_files_with_several_parts(self):
        older = json.loads((GOLDEN / "manifest_v5_unaligned.json").read_bytes())
        del older["sha256"]
        files = parse_manifest(json.dumps(older).encode()).inflight_files
        assert [f.path for f in files] == [entry["path"] for entry in older["inflight_data"]]
        with pytest.raises(CorruptCheckpointError, match="inflight_files came with format 6"):
            parse_manifest(json.dumps(older | {"inflight_files": []}).encode())
        older["inflight_data"][0]["offset"] = 0
        with pytest.raises(CorruptCheckpointError, match="offset came with format 6"):
            parse_manifest(json.dumps(older).encode())

    def test_format_6_knows_nothing_that_is_folded(self):
        older = json.loads((GOLDEN / "manifest_v6_packed.json").read_bytes())
        del older["sha256"]
        with pytest.raises(CorruptCheckpointError, match="event_times came with format 7"):
            parse_manifest(json.dumps(older | {"event_times": []}).encode())
        older["inflight_files"][0]["parts"] = []
        with pytest.raises(CorruptCheckpointError, match=r"inflight_files\.0\.parts: Extra inputs"):
            parse_manifest(json.dumps(older).encode())

    @pytest.mark.parametrize("name", ["a/b", "..", "a b", "x" * 101])
    def test_a_table_has_a_plain_name(self, name):
        newest = json.loads((GOLDEN / "manifest_v7_tables.json").read_bytes())
        del newest["sha256"]
        newest["subtasks"][0]["segments"][0]["table"] = name
        with pytest.raises(CorruptCheckpointError):
            parse_manifest(json.dumps(newest).encode())

    def test_what_is_carried_does_not_count_as_workers(self):
        assert CARRYING.workers == 2

    @pytest.mark.parametrize(
        ("carried", "problem"),
        [
            ({"other": "other"}, "carries unknown operators"),
            ({"window": "sink"}, "carries operators without their sources"),
        ],
    )
    def test_what_is_carried_is_there_and_its_source_as_well(self, carried, problem):
        marks = {o: CarriedOperator(source=s, checkpoint_id=4) for o, s in carried.items()}
        with pytest.raises(ValidationError, match=problem):
            manifest(carried=marks)

    def test_a_discovery_of_an_operator_that_is_not_there_is_refused(self):
        entry = DISCOVERY["sink"]
        with pytest.raises(ValidationError, match="discovery of unknown operators"):
            manifest(discovery={"gone": entry})


def as_format_2(descriptions):
    """A manifest of format 2 whose operators are described so, beside those that kept state."""
    newest = json.loads((GOLDEN / "manifest_v2.json").read_bytes())
    del newest["sha256"]
    digests = {operator_id: fingerprint_of(text) for operator_id, text in descriptions.items()}
    return newest | {
        "format_version": 2,
        "operators_description": newest["operators_description"] | descriptions,
        "fingerprint": newest["fingerprint"] | digests,
    }


def edges_of_format_2(description):
    return parse_manifest(json.dumps(as_format_2({"time": description})).encode()).edges


class TestEdgesOfFormat2:
    """Format 2 has them only in the words that the fingerprint is of."""

    @pytest.mark.parametrize(
        ("said", "partitioning", "overtakes"),
        [
            ("in, keyed by merchant", "keyed", True),
            ("in, keyed by a, b", "keyed", True),
            ("in, rebalanced", "rebalance", True),
            ("in, forward", "forward", False),
            ("in, broadcast", "broadcast", False),
        ],
    )
    def test_the_words_of_each_partitioning_are_known(self, said, partitioning, overtakes):
        (edge,) = edges_of_format_2({"kind": "watermarks", "inputs": [said]})
        assert (edge.upstream, edge.downstream, edge.input_index) == ("in", "time", 0)
        assert (edge.partitioning, edge.may_overtake) == (partitioning, overtakes)

    def test_the_edge_back_to_a_loop_is_never_overtaken(self):
        said = ["in, rebalanced", "again, keyed by k, feedback"]
        there, back = edges_of_format_2({"kind": "loop", "inputs": said})
        assert (there.feedback, there.may_overtake) == (False, True)
        assert (back.feedback, back.loop, back.may_overtake) == (True, "time", False)
        assert (back.input_index, back.partitioning) == (1, "keyed")

    @pytest.mark.parametrize("said", ["rebalanced, forward", "keyed, broadcast"])
    def test_an_operator_may_be_called_like_a_partitioning(self, said):
        assert [e.may_overtake for e in edges_of_format_2({"inputs": [said]})] == [False]

    def test_a_key_may_be_called_feedback(self):
        (edge,) = edges_of_format_2({"kind": "watermarks", "inputs": ["in, keyed by feedback"]})
        assert (edge.feedback, edge.may_overtake) == (False, True)
        (edge,) = edges_of_format_2({"kind": "watermarks", "inputs": ["in, keyed by k, feedback"]})
        assert (edge.feedback, edge.may_overtake) == (False, True)

    @pytest.mark.parametrize("inputs", [None, "in, forward", {}, [], [7], ["in"], ["in, by hand"]])
    def test_what_is_not_in_these_words_is_left_out(self, inputs):
        assert edges_of_format_2({"inputs": inputs}) == ()


def test_what_is_alike_is_written_once_and_an_entry_of_a_list_is_one_line():
    written = folded().to_bytes().decode()
    assert written.count(f'"path":"{folded().inflight_files[0].path}"') == 1
    lines = [
        json.loads(line.strip().rstrip(",")) for line in written.splitlines() if line[:2] == "  "
    ]
    assert [line.get("receivers") for line in lines].count(None) == 4 + 4 + 2
    times = json.loads(written)["event_times"]
    assert [(t["input_id"], t["idle"], t["receivers"], t["watermark_us"]) for t in times] == [
        (0, False, [[0, 0], [1, 1], [2, 2], [3, 3]], [5, 9, 5, None]),
        (1, False, [[0, 1], [3, 3]], [7, 7]),
        (2, False, [[0, 0]], [3]),
        (2, True, [[1, 3]], [3]),
    ]


def test_a_checkpoint_of_changes_names_what_earlier_ones_wrote():
    written = incremental()
    assert written.size_bytes == 1234 + 1234 + 9
    assert written.written_bytes == 9
    assert [file.sha256 for file in written.files()] == [DIGEST] * 3
    assert subtask("window", 0).row_count == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"{}",
        b"[" * 100_000,
        b'{"format_version": []}',
    ],
)
def test_what_is_no_manifest_is_unreadable(data):
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_manifest(data)
    assert caught.value.code is ErrorCode.MANIFEST_UNREADABLE


@pytest.mark.parametrize("version", [0, 7, "1", True, 1.0, None])
def test_another_format_version_is_refused(version):
    changed = json.loads(FIRST_EVER) | {"format_version": version}
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_manifest(json.dumps(changed).encode())
    assert caught.value.code is ErrorCode.MANIFEST_UNREADABLE


def test_a_newer_version_says_what_to_do():
    changed = json.loads(FIRST_EVER) | {"format_version": 8}
    with pytest.raises(CorruptCheckpointError, match="use the version that wrote it"):
        parse_manifest(json.dumps(changed).encode())
