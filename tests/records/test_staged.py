"""Which files committables name, and which generation wrote a file."""

import pytest

from laminar_core.records.record import FileRef
from laminar_core.records.staged import staged_files, staged_generation

FILE = FileRef(path="staged/out/0000000001-0-00000000.arrow", size_bytes=4, sha256="0" * 64)


def test_each_file_is_named_once_and_other_members_do_not_matter():
    named = {"staged_file": FILE.model_dump(), "rows": 3}
    others = [{"name": "1-0-0"}, {"staged_file": "text"}, {"staged_file": {"path": "../x"}}, {}]
    assert staged_files([named, *others, named]) == [FILE]


@pytest.mark.parametrize(
    ("key", "generation"),
    [
        ("payments/staged/out/0000000012-3-00000000.arrow", 12),
        ("0000000012-3-123456789.rows", 12),
        ("0000000000-0-00000000.arrow", None),
        ("0000000001-0-0.arrow", None),
        ("0000000001-0-00000000.arrow.tmp1", None),
        ("part-1.parquet", None),
    ],
)
def test_only_names_that_laminar_gives_have_a_generation(key, generation):
    assert staged_generation(key) == generation
