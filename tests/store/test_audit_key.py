"""The key is found where it was put, and seen by no process that does not sign."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.store.audit_key import (
    KEY_FILE_VARIABLE,
    KEY_VARIABLE,
    find_key,
    key_kept_private,
)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)


def key_file(folder: Path, data: bytes = b"secret\n", mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(data)
    path.chmod(mode)
    return path


def seen_by_a_child() -> str:
    script = f"import os; print(os.environ.get({KEY_VARIABLE!r}, 'nothing'))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return answer.stdout.decode().strip()


def test_a_key_is_in_its_variable_or_there_is_none(monkeypatch):
    assert find_key() is None
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    monkeypatch.setenv("MINE", "another")
    assert find_key() == b"secret"
    assert find_key("MINE") == b"another"
    assert find_key("NONE") is None


def test_a_process_that_is_started_does_not_inherit_a_key_that_is_kept_private(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert seen_by_a_child() == "secret"
    with key_kept_private():
        assert seen_by_a_child() == "nothing"
        assert find_key() == b"secret"
        with key_kept_private():
            assert find_key() == b"secret"
        assert KEY_VARIABLE not in os.environ
        assert find_key() == b"secret"
    assert os.environ[KEY_VARIABLE] == "secret"
    monkeypatch.delenv(KEY_VARIABLE)
    assert find_key() is None


def test_without_a_key_nothing_is_kept():
    with key_kept_private():
        assert find_key() is None
    assert KEY_VARIABLE not in os.environ


@pytest.mark.parametrize("data", [b"secret", b"secret\n", b"secret\r\n"])
def test_a_file_holds_the_key_without_the_line_end_behind_it(tmp_path, monkeypatch, data):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(key_file(tmp_path, data)))
    assert find_key() == b"secret"
    assert find_key("MINE") is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o601])
def test_a_file_that_others_can_open_is_refused(tmp_path, monkeypatch, mode):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(key_file(tmp_path, mode=mode)))
    with pytest.raises(ConfigurationError, match="chmod 600"):
        find_key()


def test_a_file_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(key_file(tmp_path)))
    owner = os.getuid()
    if owner == 0:
        os.chown(tmp_path / "key", 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        find_key()


@pytest.mark.parametrize("data", [b"", b"\n", b"x" * 5000])
def test_a_file_without_a_key_is_refused(tmp_path, monkeypatch, data):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(key_file(tmp_path, data)))
    with pytest.raises(ConfigurationError, match="must hold 1 to 4096 bytes"):
        find_key()


def test_what_is_no_file_is_refused_and_hangs_nothing(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, problem in (
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "none", "cannot be read"),
    ):
        monkeypatch.setenv(KEY_FILE_VARIABLE, str(path))
        with pytest.raises(ConfigurationError, match=problem):
            find_key()


def test_two_keys_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(key_file(tmp_path)))
    monkeypatch.setenv(KEY_VARIABLE, "another")
    with pytest.raises(ConfigurationError, match="unset one of them"):
        find_key()
    with key_kept_private(), pytest.raises(ConfigurationError, match="unset one of them"):
        find_key()


def test_a_key_may_be_any_bytes(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, os.fsdecode(b"k\xff"))
    assert find_key() == b"k\xff"
    with key_kept_private():
        assert find_key() == b"k\xff"
