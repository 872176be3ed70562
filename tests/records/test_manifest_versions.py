import json
from pathlib import Path

import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_versions import parse_manifest
from tests.records.manifests import DIGEST, file_ref, manifest, subtask, unaligned

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST_EVER = (GOLDEN / "manifest_v1.json").read_bytes()


def incremental() -> CheckpointManifest:
    """Of what changed, and of what two earlier checkpoints wrote."""
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


class TestGolden:
    """If one of them fails, checkpoints out there cannot be restored: add a version instead."""

    def test_format_1_is_read_for_ever(self):
        assert parse_manifest(FIRST_EVER) == manifest()

    @pytest.mark.parametrize("mode", ["unaligned", "switched"])
    def test_unaligned_checkpoints_of_format_1_are_read_for_ever(self, mode):
        data = (GOLDEN / f"manifest_v1_{mode}.json").read_bytes()
        assert parse_manifest(data) == unaligned(mode)

    @pytest.mark.parametrize(
        ("name", "made"),
        [("", manifest()), ("_unaligned", unaligned()), ("_incremental", incremental())],
    )
    def test_format_2_is_read_for_ever_and_written_as_it_always_was(self, name, made):
        data = (GOLDEN / f"manifest_v2{name}.json").read_bytes()
        assert parse_manifest(data) == made
        assert made.to_bytes() == data

    def test_one_file_of_format_1_is_one_segment_all_of_it_written_then(self):
        entry = parse_manifest(FIRST_EVER).subtasks[0]
        assert [segment.row_count for segment in entry.segments] == [10]
        assert entry.written_bytes == entry.size_bytes == 1234

    def test_format_1_knows_nothing_of_what_came_later(self):
        for newer in ({"imported_from": None}, {"subtasks": [{"segments": []}]}):
            with pytest.raises(CorruptCheckpointError):
                parse_manifest(json.dumps(json.loads(FIRST_EVER) | newer).encode())


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


@pytest.mark.parametrize("version", [0, 3, "1", True, 1.0, None])
def test_another_format_version_is_refused(version):
    changed = json.loads(FIRST_EVER) | {"format_version": version}
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_manifest(json.dumps(changed).encode())
    assert caught.value.code is ErrorCode.MANIFEST_UNREADABLE


def test_a_newer_version_says_what_to_do():
    changed = json.loads(FIRST_EVER) | {"format_version": 3}
    with pytest.raises(CorruptCheckpointError, match="use the version that wrote it"):
        parse_manifest(json.dumps(changed).encode())
