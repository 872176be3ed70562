from pathlib import Path

import pytest
from pydantic import ValidationError

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.checkpoint_index import IndexBlock, KnownCheckpoint
from laminar_core.records.retention import parse_sealed
from tests.records.manifests import DIGEST, file_ref, manifest, subtask

GOLDEN = Path(__file__).parents[1] / "golden" / "index_v1.json"
OTHERS = (subtask("window", 1), subtask("sink", 0), subtask("sink", 1))
SHARED = file_ref("shared/window/0000000002-0-00000001.seg")
WAITING = "staged/sink/0000000002-0-00000001.arrow"
STAGED = {"staged_file": {"path": WAITING, "size_bytes": 9, "sha256": DIGEST}}
MANIFESTS = (
    manifest(
        checkpoint_id=257,
        parent_checkpoint_id=256,
        subtasks=(subtask("window", 0, SHARED, committables=(STAGED,)), *OTHERS),
    ),
    manifest(
        checkpoint_id=259,
        parent_checkpoint_id=257,
        kind=CheckpointKind.SAVEPOINT,
        subtasks=(subtask("window", 0, segments=(SHARED, file_ref())), *OTHERS),
    ),
)
KNOWN = [KnownCheckpoint.of(each) for each in MANIFESTS]
BLOCK = IndexBlock.of("payments", 2, DIGEST, [(known, 1_000) for known in KNOWN])


def test_a_block_has_of_each_manifest_what_lists_and_plans_need() -> None:
    assert [BLOCK.known(each) for each in BLOCK.checkpoints] == KNOWN
    first, second = KNOWN
    assert first.staged == {WAITING}
    assert first.files == {SHARED.path: 1234}
    assert second.size_bytes == MANIFESTS[1].size_bytes == 2 * 1234


def test_a_file_that_many_checkpoints_name_is_written_once() -> None:
    assert BLOCK.paths == (SHARED.path, file_ref().path)


def test_the_golden_block_is_read_and_written_as_it_was() -> None:
    assert parse_sealed(IndexBlock, GOLDEN.read_bytes()) == BLOCK
    assert BLOCK.to_bytes() == GOLDEN.read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": (1,)},
        {"number": 3},
        {"checkpoints": BLOCK.checkpoints[::-1]},
        {"checkpoints": BLOCK.checkpoints[:1] * 2},
        {"paths": (), "sizes": ()},
    ],
)
def test_a_block_that_contradicts_itself_is_refused(changes) -> None:
    with pytest.raises(ValidationError):
        IndexBlock(**dict(BLOCK) | changes)


def test_a_block_with_one_changed_byte_is_refused() -> None:
    with pytest.raises(CorruptCheckpointError):
        parse_sealed(IndexBlock, GOLDEN.read_bytes().replace(b"1234", b"1235", 1))
