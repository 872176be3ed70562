"""Working files: made when state needs them, gone at the end, and what was killed is swept up."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.plan.state_options import StateOptions
from laminar_core.state.chunks import MemoryBackend
from laminar_core.worker.backends import (
    SPARK_FOLDERS,
    WorkingState,
    open_backend,
    working_root,
)
from tests.worker.test_deployment import deployment

TABLE = pa.table({"n": pa.array([1, 2, 3], pa.int64())})


def opened(root: Path, name: str = "job-1-0-") -> WorkingState:
    return WorkingState(root, name, StateOptions(backend="rocksdb", simulated_files=True))


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.exists() else []


def test_nothing_is_made_before_state_needs_it_and_nothing_is_left(tmp_path: Path) -> None:
    state = opened(tmp_path / "root")
    state.close()
    assert folders(tmp_path / "root") == []
    shelf = state.shelf(TABLE.schema)
    assert shelf.put(0, 0, TABLE).read().equals(TABLE)
    assert len(folders(tmp_path / "root")) == 1
    state.close()
    assert folders(tmp_path / "root") == []


def test_operators_of_a_worker_share_one_folder(tmp_path: Path) -> None:
    state = opened(tmp_path)
    first, second = state.shelf(TABLE.schema), state.shelf(TABLE.schema)
    chunks = [shelf.put(0, 0, TABLE.slice(n, 1)) for n, shelf in enumerate((first, second))]
    assert [chunk.read().column("n").to_pylist() for chunk in chunks] == [[1], [2]]
    assert len(folders(tmp_path)) == 1
    state.close()


def test_what_a_killed_worker_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    """Goal: the lock goes with the process, so a folder without one is of a dead worker."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from tests.worker.test_backends import opened, TABLE\n"
        "opened(Path(sys.argv[1]), 'killed-').shelf(TABLE.schema).put(0, 0, TABLE)\n"
        "os._exit(1)"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=root, check=False)
    assert [name.startswith("killed-") for name in folders(tmp_path)] == [True]
    alive = opened(tmp_path, "alive-")
    kept = alive.shelf(TABLE.schema).put(0, 0, TABLE)
    assert [name.startswith("alive-") for name in folders(tmp_path)] == [True]
    other = opened(tmp_path, "other-")
    other.shelf(TABLE.schema)
    assert len(folders(tmp_path)) == 2
    assert kept.read().equals(TABLE)
    other.close()
    alive.close()
    assert folders(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageUnavailable, match="--state-directory") as caught:
        opened(tmp_path / "file" / "root").shelf(TABLE.schema)
    assert caught.value.code is ErrorCode.WORKING_STATE


def test_a_folder_that_others_can_open_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root").chmod(0o755)
    with pytest.raises(StorageUnavailable, match="others can open it") as caught:
        opened(tmp_path / "root").shelf(TABLE.schema)
    assert caught.value.code is ErrorCode.WORKING_STATE


def test_the_folder_is_the_one_named_or_sparks_or_that_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv(SPARK_FOLDERS, raising=False)
    assert working_root(StateOptions(), 1).parent == tmp_path
    monkeypatch.setenv(SPARK_FOLDERS, "/disk-a,/disk-b")
    assert [working_root(StateOptions(), n).parent.name for n in range(3)] == [
        "disk-a",
        "disk-b",
        "disk-a",
    ]
    assert working_root(StateOptions(directory="/mine"), 1).parent == Path("/mine")


def test_the_memory_backend_has_no_files() -> None:
    assert isinstance(open_backend(deployment(), 0), MemoryBackend)
