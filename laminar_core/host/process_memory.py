"""Spare a worker's process two kinds of work that the defaults repeat again and again.

The arrays of a batch have a megabyte each and live for some milliseconds. By default glibc returns
such memory to the system when it is freed, and the system hands it out again page by page, each of
them cleared. And a full garbage collection looks at everything that was ever imported.
Sources: mallopt(3), Python's documentation of ``gc.freeze``.
"""

import ctypes
import gc

KEPT_BYTES_MAX = 128 << 20
"""More free memory than this at the end of the heap goes back to the system."""
LARGE_BYTES = 32 << 20
"""Larger blocks are returned at once; glibc allows no higher limit."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Make the C library use freed memory again instead of returning it to the system.

    Return False if the library has no such setting, as on macOS.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    asked = {_M_TRIM_THRESHOLD: KEPT_BYTES_MAX, _M_MMAP_THRESHOLD: LARGE_BYTES}
    return all(mallopt(setting, size_bytes) for setting, size_bytes in asked.items())


def spare_what_is_loaded() -> None:
    """Exclude all objects that there are now from garbage collections: modules, classes, functions.

    They are more than a hundred thousand, and looking through them takes a tenth of a second.
    """
    gc.freeze()
