"""Histories of an operator with one input: those of joins, with rows of the left side only."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from laminar_core.operators.base import JsonObject, OperatorSpec, SubtaskContext
from laminar_core.protocol.types import WATERMARK_END_US
from tests.operators.joins.join_histories import LEFT_SCHEMA, STEPS, History, Row, moment

ONE_INPUT_STEPS = STEPS.map(
    lambda steps: [
        ("rows", 0, [row for row in step[2] if row[1] is not None]) if step[0] == "rows" else step
        for step in steps
    ]
)
"""Steps of a history with rows of one side, each with an event time."""


class _Adapted:
    """A subtask with one input, called as one with several."""

    def __init__(self, subtask: Any) -> None:
        self._subtask = subtask

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterable[Any]:
        assert index == 0
        return self._subtask.process(batch)

    def output_watermark(self, watermark_us: int) -> int:
        own = getattr(self._subtask, "output_watermark", None)
        return watermark_us if own is None else own(watermark_us)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subtask, name)


class _Spec:
    """An operator with one input, opened as one with several."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.operator_id, self.input_names = spec.operator_id, ("input",)
        self._spec = spec

    def describe(self) -> JsonObject:
        return self._spec.describe()

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        return self._spec.output_schema(inputs[0])

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> Any:
        return _Adapted(self._spec.open(context, inputs[0]))


class OneInputHistory(History):
    """A history of rows of ``LEFT_SCHEMA``; ``late_after_us`` is None if no row is ever late.

    ``batches``: the accepted rows of each step, with those of a key in one batch.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        times: Sequence[str] = (),
        workers: int = 1,
        late_after_us: int | None = 0,
    ) -> None:
        self.batches: list[list[Row]] = []
        after_us = _NEVER_LATE if late_after_us is None else late_after_us
        judged_us = lambda time_us: time_us + after_us  # noqa: E731
        super().__init__(_Spec(spec), times, workers, judged_us=judged_us)

    def rows(self, side: int, rows: list[Row]) -> None:
        before = len(self.accepted[0])
        super().rows(side, rows)
        self.batches.append(self.accepted[0][before:])


def as_row(row: Row) -> dict:
    """Return a row as the operator gets it."""
    key, time_us, number = row
    assert time_us is not None
    return dict(zip(LEFT_SCHEMA.names, [number, key, moment(time_us), float(number)], strict=True))


WORKERS = st.integers(1, 3)
_NEVER_LATE = WATERMARK_END_US // 2
