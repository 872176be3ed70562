import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.store import owner as owner_module
from laminar_core.store.owner import is_running, is_same_process, is_visible, this_process
from tests.store.stores import elsewhere, gone, owner_of, replace_owner


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def test_this_process_is_visible_and_running():
    owner = this_process()
    assert owner.pid == os.getpid()
    assert is_visible(owner)
    assert is_running(owner)


def test_no_two_are_equal():
    assert this_process() != this_process()


def test_a_process_is_running_until_it_is_killed_even_if_nobody_waits_for_it(child):
    """A driver's parent may never collect it; a zombie in the system's sense writes nothing."""
    owner = owner_of(child.pid)
    assert is_running(owner)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}/stat").exists()
    assert not is_running(owner)
    child.wait()
    assert not is_running(owner)


def test_a_stopped_process_is_running(child):
    """It will go on when it is continued."""
    owner = owner_of(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_running(owner)
    os.kill(child.pid, signal.SIGCONT)


def test_another_process_with_the_same_pid_is_not_it():
    assert not is_running(gone(this_process()))


def test_a_name_with_brackets_and_blanks_does_not_confuse(tmp_path):
    program = tmp_path / "a) Z (b"
    program.symlink_to(sys.executable)
    process = subprocess.Popen([str(program), "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert is_running(owner_of(process.pid))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


@pytest.mark.parametrize("change", [{"boot_id": "x"}, {"host_id": "x"}])
def test_another_machine_boot_or_namespace_is_not_visible(change):
    assert not is_visible(replace_owner(this_process(), **change))
    assert not is_visible(elsewhere())


def test_without_proc_nothing_is_visible_and_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(owner_module, "_PROC", tmp_path)
    owner = this_process()
    assert owner.boot_id == ""
    assert not is_visible(owner)


def test_elsewhere_than_on_linux_nothing_is_visible_and_nothing_fails(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    owner = this_process()
    assert (owner.boot_id, owner.host_id) == ("", f"{os.uname().nodename}/unknown")
    assert not is_visible(owner)
    assert is_running(owner)


def test_a_user_without_name_is_a_number(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999)
    assert this_process().user == "3999999"


def test_every_claim_of_a_process_is_by_the_same_one():
    one, other = this_process(), this_process()
    assert one != other
    assert is_same_process(one, other)
    assert not is_same_process(one, other.model_copy(update={"pid": one.pid + 1}))
    assert not is_same_process(one, other.model_copy(update={"boot_id": "another"}))
