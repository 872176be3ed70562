"""Files of a killed process are removed by proof of its death, and only their user gets in."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.host import private_folders
from laminar_core.host.private_folders import PrivateFolder, make_root, temporary_root

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
from pathlib import Path
from laminar_core.host.private_folders import PrivateFolder
folder = PrivateFolder.open(Path(sys.argv[1]), "killed-")
(folder.path / "state").write_text("large")
os.kill(os.getpid(), 9)
"""


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def test_a_folder_and_its_root_are_open_to_their_user_alone(tmp_path):
    previous = os.umask(0)
    try:
        folder = PrivateFolder.open(tmp_path / "a" / "root", "mine-")
    finally:
        os.umask(previous)
    with folder as path:
        for each in (path, path.parent):
            assert stat.S_IMODE(each.lstat().st_mode) == 0o700
        assert path.name.startswith("mine-")
    assert not path.exists()
    folder.close()


def test_what_a_killed_process_left_goes_and_what_lives_stays(tmp_path):
    root = tmp_path / "root"
    alive = PrivateFolder.open(root, "alive-")
    command = [sys.executable, "-c", SCRIPT, str(root)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    assert [name.partition("-")[0] for name in folders(root)] == ["alive", "killed"]
    with PrivateFolder.open(root, "next-"):
        assert [name.partition("-")[0] for name in folders(root)] == ["alive", "next"]
    alive.close()
    assert folders(root) == []


def test_an_old_folder_of_a_living_process_stays(tmp_path):
    with PrivateFolder.open(tmp_path / "root", "old-") as path:
        os.utime(path, (0, 0))
        os.utime(path / "lock", (0, 0))
        with PrivateFolder.open(tmp_path / "root", "new-"):
            assert path.exists()


@pytest.mark.parametrize("moment", ["_is_left", "_set_aside"])
def test_a_folder_that_its_own_process_removes_meanwhile_disturbs_nobody(
    tmp_path, monkeypatch, moment
):
    closing = PrivateFolder.open(tmp_path / "root", "closing-")
    (closing.path / "lock").unlink()  # ``close`` removes this file first, and then the folder.
    reached = getattr(private_folders, moment)

    def closed_first(folder: Path) -> object:
        closing.close()
        return reached(folder)

    monkeypatch.setattr(private_folders, moment, closed_first)
    with PrivateFolder.open(tmp_path / "root", "next-") as path:
        assert folders(tmp_path / "root") == [path.name]


def refusal(root: Path) -> str:
    with pytest.raises(PermissionError) as caught:
        make_root(root)
    return caught.value.strerror or ""


def test_a_root_that_somebody_else_has_made_is_refused(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    make_root(root)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert refusal(root) == f"it belongs to user {owner}"


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_root_that_others_can_open_is_refused(tmp_path, mode):
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    assert refusal(root) == f"others can open it, its mode is {mode:04o}"


def test_a_root_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "root").symlink_to(tmp_path / "theirs")
    assert refusal(tmp_path / "root") == "it is a link, and no folder"


def test_the_root_for_what_is_temporary_has_the_name_of_its_user(tmp_path):
    assert temporary_root(str(tmp_path)) == tmp_path / f"laminar-{os.getuid()}"
