import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.damage import DamagedFile, DamageRecord
from laminar_core.records.manifest import parse_record

RECORD = DamageRecord(
    job="payments",
    checkpoint_id=12,
    generation=3,
    found_at_ms=1_700_000_000_000,
    file_count=1,
    files=(DamagedFile(path="shared/totals/0000000001-0-00000007.seg", problem="digest"),),
)


def test_it_is_read_as_it_was_written():
    assert parse_record(DamageRecord, RECORD.to_bytes()) == RECORD


def test_it_ends_in_the_digest_of_itself():
    with pytest.raises(CorruptCheckpointError):
        parse_record(DamageRecord, RECORD.to_bytes().replace(b"digest", b"length"))
