"""Footers are read in parallel; row groups without rows are no splits."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.parquet_footers import pins, read_footers
from laminar_core.connectors.parquet_inputs import LocalInput
from laminar_core.errors import ConfigurationError, ErrorCode


def write(path: Path, table: pa.Table | None = None, **options) -> Path:
    pq.write_table(table if table is not None else pa.table({"n": [1, 2, 3]}), path, **options)
    return path


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"not parquet at all", b"PAR1\0\0\0\0\xff\xff\xff\x7fPAR1"]
)
def test_a_broken_footer_is_refused_by_name(tmp_path, content):
    good, bad = write(tmp_path / "a.parquet"), tmp_path / "b.parquet"
    bad.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"cannot read .*b\.parquet") as caught:
        read_footers(LocalInput(str(tmp_path)), [str(good), str(bad)])
    assert caught.value.code is ErrorCode.UNREADABLE_FILE
    assert "\n" not in str(caught.value)


def test_row_groups_without_rows_are_not_pinned(tmp_path):
    file = tmp_path / "a.parquet"
    with pq.ParquetWriter(file, pa.schema([("n", pa.int64())])) as writer:
        for numbers in ([1, 2], [], [3]):
            writer.write_table(pa.table({"n": pa.array(numbers, pa.int64())}))
    footer = pq.read_metadata(file)
    pinned = pins(LocalInput(str(file)), str(file), footer)
    found = [(pin["row_group"], pin["rows_total"]) for pin in pinned]
    assert [count for _, count in found] == [2, 1]
    assert footer.row_group(found[1][0]).num_rows == 1
