"""Which processes a server consists of, and where they listen."""

from contextlib import suppress

import psutil


def processes_of(port: int) -> list[psutil.Process]:
    """Return the process that listens on a port, if we may look at it, and its children."""
    found: list[psutil.Process] = []
    for each in psutil.process_iter():
        with suppress(psutil.AccessDenied, psutil.NoSuchProcess):
            if any(at == port for _, at in listening([each])):
                found += [each, *each.children(recursive=True)]
    return found


def listening(processes: list[psutil.Process]) -> set[tuple[str, int]]:
    """Return address and port of everything that listens."""
    return {
        (one.laddr.ip.removeprefix("::ffff:"), one.laddr.port)
        for process in processes
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }
