"""Spare a worker's process two kinds of work that the defaults repeat again and again.

The arrays of a batch have a megabyte each and live for some milliseconds. By default glibc returns
such memory to the system when it is freed, and Arrow's allocator (mimalloc) does so 10 ms later.
The system hands it out again page by page, each of them cleared. And a full garbage collection
looks at everything that was ever imported.
Sources: mallopt(3), the options of mimalloc, Python's documentation of ``gc.freeze``.
"""

import ctypes
import gc
import os

KEPT_BYTES_MAX = 128 << 20
"""More free memory than this at the end of the heap goes back to the system."""
LARGE_BYTES = 32 << 20
"""Larger blocks are returned at once; glibc allows no higher limit."""

ARROW_KEPT_MS = 10_000
"""Freed memory of Arrow is returned to the system after this time, longer than an interval."""

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


def keep_freed_arrow_memory() -> None:
    """Make Arrow use freed memory again for some seconds, and without huge pages.

    Of a huge page all two megabytes are cleared when its first byte is used. Call this before
    pyarrow is imported; what the environment says already is left as it is.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", str(ARROW_KEPT_MS))
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")


def spare_what_is_loaded() -> None:
    """Exclude all objects that there are now from garbage collections: modules, classes, functions.

    They are more than a hundred thousand, and looking through them takes a tenth of a second.
    """
    gc.freeze()
