"""Force what was written from the caches of the system and of the disk onto the disk."""

import errno
import fcntl
import os
import sys

_UNKNOWN_THERE = {errno.EINVAL, errno.ENOTSUP, errno.ENOTTY}


def flush_to_disk(descriptor: int) -> None:
    """Return when a file, or the names in a folder, would survive a loss of power.

    On macOS ``fsync`` ends when the disk has the data in its own cache. Emptying that takes a
    request of its own, which some file systems, such as those of a network, do not know.

    Raises:
        OSError: the disk reports an error.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _UNKNOWN_THERE:
                raise
        else:
            return
    os.fsync(descriptor)
