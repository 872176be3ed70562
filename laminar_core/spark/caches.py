"""Where things are kept that are made once for each Python environment, and used by every start."""

import os
import sys
from pathlib import Path


def cache_folders() -> tuple[Path, Path]:
    """Return the folder of the Python environment, and one of the user, in this order.

    A user may not be allowed to write into the first one. The second one is where the XDG Base
    Directory Specification puts caches. Neither has to exist.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(sys.prefix) / "share" / "laminar", cache / "laminar"
