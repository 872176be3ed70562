"""The head of a loop changes nothing."""

import pyarrow as pa

from laminar_core.operators.base import SubtaskContext
from laminar_core.operators.loops import LoopHead
from laminar_core.protocol.types import Generation

ROWS = pa.record_batch({"id": [1, 2]})


def test_rows_pass_and_nothing_is_kept() -> None:
    head = LoopHead("retry")
    assert head.output_schema(ROWS.schema) == ROWS.schema
    subtask = head.open(SubtaskContext("retry", 0, 1, 128, Generation(1)), ROWS.schema)
    assert list(subtask.process(ROWS)) == [ROWS]
    assert list(subtask.on_watermark(5)) == []
    assert not subtask.snapshot(1)().tables
