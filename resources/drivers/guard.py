"""Become another program, which gets SIGTERM when the process that started it dies.

usage: guard.py PARENT_PID PROGRAM [ARGUMENT]...

It runs as a program of its own because the request is tied to the process that makes it and
survives only an ``exec``; between ``fork`` and ``exec`` of a threaded parent it would not be safe.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request SIGTERM at the death of the parent, then become the program."""
    parent_pid, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent_pid):
        sys.exit(1)  # It died before it could be watched.
    os.execv(program, [program, *arguments])  # noqa: S606 - there is no shell to avoid


if __name__ == "__main__":
    main()
