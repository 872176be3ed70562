"""The durable data of one job: checkpoints, generations, savepoints, and logs."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

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
