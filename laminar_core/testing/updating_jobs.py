"""Jobs that update their results: wrong if a row is not taken back, or taken back twice."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from laminar_core.operators.weights import WEIGHT
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    DELAY,
    BuildJob,
    Burden,
    Job,
    Judge,
    Row,
    payments,
    rows_of,
    with_ledgers,
)
from laminar_core.testing.join_jobs import full_join, slow_and_fast
from laminar_core.testing.memory_source import MemorySource

KEPT = 3
_SHOPS = ["k0", "k1", "k2"]
