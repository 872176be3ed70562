"""Enrichment by calls of other services: the options of ``Stream.enrich``.

    async def banks(rows: pa.RecordBatch) -> pa.RecordBatch: ...

    payments.enrich("banks", banks, schema=pa.schema({"bank": pa.string()}), concurrency=20)

The function gets some rows, and returns their further columns: a batch with as many rows. Rows keep
their order, and event time does not overtake them. A checkpoint has the rows that wait, and never
waits for them; after a restore they are called again. So calls happen at least once, and each
result is there exactly once.
"""

from typing import NotRequired, Required, TypedDict

import pyarrow as pa

from laminar_core.arguments import (
    require_function,
    require_instance,
    require_schema,
)
from laminar_core.operators.enrich.spec import AsyncFunction, Enrich, OnError
from laminar_core.operators.enrich.subtask import Limits
from laminar_core.units import Duration, duration_ms


class EnrichOptions(TypedDict):
    """The options of ``Stream.enrich``."""

    schema: Required[pa.Schema]
    """The columns that the function returns."""
    concurrency: NotRequired[int]
    """Calls of a worker that may run at once; 100 by default."""
    timeout: NotRequired[Duration]
    """The longest duration of an attempt; 10 seconds by default."""
    attempts: NotRequired[int]
    """Attempts at a call before it has failed; 1 by default. Waits in between grow."""
    rows_per_call: NotRequired[int]
    """Rows that a call gets at most; 100 by default."""
    pending_rows_max: NotRequired[int]
    """Rows that may wait in a worker before it takes no more; 10,000 by default."""
    on_error: NotRequired[OnError]
    """``fail`` restarts the job, ``null`` leaves the new columns null, and ``side`` gives the rows
    to ``side("failed")``, with the reason in the column ``error``; ``fail`` by default."""


def enrichment(name: str, function: AsyncFunction, options: EnrichOptions) -> Enrich:
    """Return the operator.

    Raises:
        ConfigurationError: the timeout is no duration (INVALID_OPTION).
    """
    require_function(function, f"{name} takes a coroutine function")
    require_schema(options.get("schema"), f"the schema of {name}")
    limits = Limits(
        options.get("concurrency", 100),
        duration_ms(options.get("timeout", "10 seconds")),
        options.get("attempts", 1),
        options.get("rows_per_call", 100),
        options.get("pending_rows_max", 10_000),
    )
    on_error = options.get("on_error", "fail")
    require_instance(on_error, str, f"{name}: on_error must be 'fail', 'null' or 'side'")
    return Enrich(name, function, options["schema"], limits, on_error)
