"""The durable data of one job: checkpoints, generations, savepoints, and logs."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laminar_core.store.comparison import compare_operator
    from laminar_core.store.jobs import newest_manifest, open_job
    from laminar_core.store.state_reading import read_operator, table_names

__all__ = [
    "compare_operator",
    "newest_manifest",
    "open_job",
    "read_operator",
    "table_names",
]

_MODULES = {
    "compare_operator": "comparison",
    "newest_manifest": "jobs",
    "open_job": "jobs",
    "read_operator": "state_reading",
    "table_names": "state_reading",
}


def __getattr__(name: str) -> object:
    """Import what is public when it is first used: a single module need not load all of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
