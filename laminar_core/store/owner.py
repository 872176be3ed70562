"""Identify this process, and check whether another one still runs.

Elsewhere than on Linux: unknown.
"""

import os
import pwd
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil

from laminar_core.records.manifest import Owner

_CLAIM_NUMBERS = count(1)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
"""The only place of two facts, the boot and the pid namespace (ADR 0052). Without them (macOS) no
owner is visible, and a start has to watch the owner's heartbeat."""


def this_process() -> Owner:
    """Describe the calling process; no two results are equal, on any machine, at any time."""
    return Owner(
        host_id=_host_id(),
        boot_id=_boot_id(),
        pid=os.getpid(),
        pid_start_time=_start_time(os.getpid()) or 0,
        claim_number=next(_CLAIM_NUMBERS),
        user=_user(),
    )


def is_visible(owner: Owner) -> bool:
    """Return whether ``owner`` belongs to this machine, this boot and this pid namespace."""
    boot_id = _boot_id()
    return bool(boot_id) and (owner.host_id, owner.boot_id) == (_host_id(), boot_id)


def is_running(owner: Owner) -> bool:
    """Return whether a visible ``owner`` still runs.

    A later process with its pid does not count.
    """
    return _start_time(owner.pid) == owner.pid_start_time


def is_gone(owner: Owner) -> bool:
    """Return whether ``owner`` is known to be dead: it belonged to this machine, and has ended."""
    return is_visible(owner) and not is_running(owner)


def is_same_process(one: Owner, other: Owner) -> bool:
    """Return whether two claims are by one process; it makes one for each of its generations."""
    return one == other.model_copy(update={"claim_number": one.claim_number})


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of the process; None if it is gone.

    A process that was killed and not yet waited for is gone: it writes nothing any more. Both times
    follow a clock that is set, and their difference does not.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return round((process.create_time() - psutil.boot_time()) * _TICKS_PER_SECOND)
    except psutil.Error:
        return None


def _host_id() -> str:
    namespace = "pid:[unknown]"
    if sys.platform == "linux":
        with suppress(OSError):
            namespace = (_PROC / "self/ns/pid").readlink().name
    return f"{os.uname().nodename}/{namespace.removeprefix('pid:').strip('[]')}"


def _boot_id() -> str:
    if sys.platform != "linux":
        return ""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
