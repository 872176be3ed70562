"""State on disk: what was put is read back, what nobody refers to goes, errors are one line."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.plan.state_options import MEMORY_BYTES_MIN
from laminar_core.state.rocks_chunks import RocksBackend

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.int32()))])


def table(first: int, rows: int = 100) -> pa.Table:
    numbers = range(first, first + rows)
    columns = [
        [str(n) if n % 7 else None for n in numbers],
        numbers,
        [[n] * (n % 3) for n in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksBackend]:
    opened = RocksBackend(tmp_path / "state", MEMORY_BYTES_MIN)
    yield opened
    opened.close()


def values(backend: RocksBackend) -> int:
    return len(list(backend._opened().keys()))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_was_put_is_read_back(tmp_path: Path, compression) -> None:
    backend = RocksBackend(tmp_path / "state", MEMORY_BYTES_MIN, compression)
    shelf = backend.shelf(SCHEMA)
    starts = [-(2**63), -1, 0, 2**63 - 1]
    chunks = [shelf.put(start, 32_767, table(n)) for n, start in enumerate(starts)]
    for n, chunk in enumerate(chunks):
        assert chunk.read().equals(table(n))
        assert (chunk.row_count, chunk.size_bytes) == (100, table(n).nbytes)
    keys = list(backend._opened().keys())
    assert keys == [chunk._key for chunk in chunks], "in the order of time"
    backend.close()


def test_slices_and_large_tables_survive_the_disk(backend: RocksBackend) -> None:
    """4 x 1 MB of write buffers are crossed, so values are read from files."""
    shelf = backend.shelf(SCHEMA)
    large = table(0, 40_000)
    chunks = [shelf.put(n, 0, large.slice(n, 20_000)) for n in range(60)]
    assert any(Path(backend._folder).glob("*.blob")), "nothing was written to disk"
    for n in (0, 30, 59):
        assert chunks[n].read().equals(large.slice(n, 20_000))


def test_a_chunk_goes_when_the_last_one_lets_go_of_it(backend: RocksBackend) -> None:
    shelf = backend.shelf(SCHEMA)
    chunks = [shelf.put(0, 0, table(n)) for n in range(10)]
    pinned = chunks[3]
    del chunks
    kept = shelf.put(0, 0, table(99))
    assert values(backend) == 2
    assert pinned.read().equals(table(3))
    assert kept.read().equals(table(99))


def test_threads_may_put_and_read_at_once(backend: RocksBackend) -> None:
    shelf = backend.shelf(SCHEMA)

    def work(first: int) -> bool:
        chunks = [shelf.put(first, n, table(first + n)) for n in range(20)]
        return all(chunk.read().equals(table(first + n)) for n, chunk in enumerate(chunks))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(0, 8000, 1000)))


def test_shelves_share_the_budget(tmp_path: Path) -> None:
    backend = RocksBackend(tmp_path / "state", 1 << 30)
    first = backend.shelf(SCHEMA)
    assert first.gathered_bytes_max == 1 << 28
    assert backend.shelf(SCHEMA).gathered_bytes_max == first.gathered_bytes_max == 1 << 27
    backend.close()


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageUnavailable, match="--state-directory") as caught:
        RocksBackend(tmp_path / "file" / "state", MEMORY_BYTES_MIN).shelf(SCHEMA)
    assert caught.value.code is ErrorCode.WORKING_STATE
    assert "\n" not in str(caught.value)


@pytest.mark.large
def test_damage_on_disk_is_found_and_said(backend: RocksBackend) -> None:
    shelf = backend.shelf(SCHEMA)
    chunks = [shelf.put(n, 0, table(0, 20_000)) for n in range(60)]
    for file in Path(backend._folder).glob("*.blob"):
        data = bytearray(file.read_bytes())
        for position in range(100, len(data), 5_000):
            data[position] ^= 0xFF
        file.write_bytes(data)
    with pytest.raises(StorageUnavailable, match="a restart rebuilds them") as caught:
        chunks[0].read()
    assert caught.value.code is ErrorCode.WORKING_STATE


def test_nothing_is_read_after_the_end(backend: RocksBackend) -> None:
    chunk = backend.shelf(SCHEMA).put(0, 0, table(0))
    backend.close()
    backend.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        chunk.read()
