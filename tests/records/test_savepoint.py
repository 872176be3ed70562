"""A directory is a savepoint if its record can be read; otherwise it is refused."""

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.savepoint import (
    SavepointOrigin,
    SavepointRecord,
    is_own,
    manifest_as_json,
    outside_checkpoint,
    parse_savepoint,
    relocated,
)
from laminar_core.records.seal import seal, unseal
from tests.records.manifests import file_ref, manifest, subtask

ORIGIN = SavepointOrigin(
    job="payments", store="/store", generation=2, checkpoint_id=7, claim_sha256=None
)


def savepoint(path: str = "operators/window/state_0.seg", **changes) -> SavepointRecord:
    subtasks = (
        subtask("window", 0, file_ref(path)),
        subtask("window", 1),
        subtask("sink", 0),
        subtask("sink", 1),
    )
    fields = {
        "origin": ORIGIN,
        "canonical": True,
        "actor": "ann",
        "reason": "a test",
        "created_at_ms": 1,
        "code_version": "laminar 0.1.0",
        "manifest": manifest_as_json(manifest(subtasks=subtasks)),
    }
    return SavepointRecord(**fields | changes)


def test_a_record_is_read_back_with_its_manifest():
    written = savepoint()
    read = parse_savepoint(written.to_bytes())
    assert read == written
    assert [file.path for file in read.cut().files()] == ["operators/window/state_0.seg"]


@pytest.mark.parametrize("place", [3, 100, -10])
def test_a_flipped_bit_is_found(place):
    data = bytearray(savepoint().to_bytes())
    data[place] ^= 1
    with pytest.raises(CorruptCheckpointError):
        parse_savepoint(bytes(data))


def test_a_record_without_its_digest_is_refused():
    with pytest.raises(CorruptCheckpointError, match="its own digest is missing"):
        parse_savepoint(unseal(savepoint().to_bytes()))


@pytest.mark.parametrize("path", ["checkpoints/0000000007/x", "savepoint.json", "shared/a.seg"])
def test_a_savepoint_names_only_files_of_its_own(path):
    with pytest.raises(CorruptCheckpointError, match="has its files in operators/"):
        parse_savepoint(savepoint(path).to_bytes())


def test_a_version_that_is_not_known_is_refused():
    plain = unseal(savepoint().to_bytes()).replace(b'"format_version": 1', b'"format_version": 9')
    with pytest.raises(CorruptCheckpointError, match="format_version"):
        parse_savepoint(seal(plain))


def test_paths_go_out_of_a_checkpoint_and_into_another():
    moved = relocated(savepoint().cut(), "checkpoints/0000000009/")
    assert [file.path for file in moved.files()] == [
        "checkpoints/0000000009/operators/window/state_0.seg"
    ]
    assert outside_checkpoint(moved.files()[0].path) == "operators/window/state_0.seg"


def test_a_shared_segment_is_not_the_checkpoints_own():
    assert is_own("checkpoints/0000000009/operators/window/state_0.seg")
    assert not is_own("shared/window/0000000001-0-00000000.seg")
