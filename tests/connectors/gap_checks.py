"""Refuse a source's gaps as a start does."""

import pyarrow as pa

from laminar_core.connectors.base import Source
from laminar_core.driver.recovery.gaps import judge_gaps


def refuse_gaps(source: Source, splits: pa.Table) -> None:
    """Raise what a start without acceptances would."""
    problem = judge_gaps("in", source.gaps(splits), ()).problem
    if problem is not None:
        raise problem
