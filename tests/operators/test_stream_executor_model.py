"""The document's property: cut anywhere, restore, go on; the results are those of one run.

Exact for everything but double precision and t-digests (ERRATA 1.16): where the cut is decides in
which order partial results meet, and a digest that is merged is not quite the one that was fed.
Values are quarters here, so that sums are exact, too; spreads may differ in their last bits.
"""

import math
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laminar_core.codec.envelope import CODECS
from laminar_core.operators import windows
from laminar_core.operators.queries import AggregateQuery
from laminar_core.operators.stream_executor import StreamExecutor
from laminar_core.protocol.types import WATERMARK_END_US
from tests.operators.executor_states import EVERYTHING, SCHEMA, SECOND, Row, batch_of
from tests.sampling import drawn

QUERIES = (
    AggregateQuery("running", ("k",), EVERYTHING),
    AggregateQuery("windows", ("k",), EVERYTHING, filter=pa.compute.field("v") != 3,
                   window=windows.sliding("10 seconds", "5 seconds"), time_column="ts",
                   allowed_lateness_us=2 * SECOND),
    AggregateQuery("all", (), EVERYTHING, window=windows.tumbling("7 seconds"), time_column="ts"),
)  # fmt: skip
FUNCTIONS = [aggregate.function for aggregate in EVERYTHING[:-1]]
SPREADS = {"var_pop", "var_samp", "stddev_pop", "stddev_samp"}
ROW = st.tuples(
    st.sampled_from(["a", "b", "", None]), st.none() | st.integers(-6, 6), st.integers(0, 40)
)
STEPS = st.lists(st.lists(ROW, max_size=8) | st.integers(0, 45), max_size=10)


def run(executor: StreamExecutor, steps: Sequence[list[Row] | int]) -> list:
    """Batches are lists of rows, watermarks are seconds."""
    emitted = []
    for step in steps:
        results = (
            executor.process(batch_of(step))
            if isinstance(step, list)
            else executor.on_watermark(step * SECOND)
        )
        # Which key comes first in a batch is nobody's promise.
        emitted.append(
            sorted((r.query_id, str(key), row) for r in results for key, row in keyed(r))
        )
    return emitted


def keyed(result: object) -> list[tuple[list, list]]:
    rows = [list(row.values()) for row in result.batch.to_pylist()]
    return [(row[: -len(EVERYTHING)], row[-len(EVERYTHING) :]) for row in rows]


def agree(function: str, left: object, right: object) -> bool:
    """Equal, also NaN with NaN; spreads but for their last bits."""
    if function in SPREADS and isinstance(left, float) and isinstance(right, float):
        return (left != left and right != right) or math.isclose(left, right, rel_tol=1e-12)  # noqa: PLR0124 - only NaN
    return left == right or (left != left and right != right)  # noqa: PLR0124 - only NaN


@pytest.mark.large
@settings(deadline=None, max_examples=drawn(30))
@example([[("a", 0, 25), ("a", 1, 30)], [("a", -3, 25)]], 2, "none")  # One spread, two last bits.
@given(STEPS, st.integers(0, 10), st.sampled_from(CODECS))
def test_a_checkpoint_anywhere_changes_no_result(steps: list, cut: int, codec: str) -> None:
    steps = [*steps, [("a", 1, 44), ("b", None, 44)], WATERMARK_END_US // SECOND]
    whole = run(StreamExecutor(QUERIES, SCHEMA), steps)
    first = StreamExecutor(QUERIES, SCHEMA, codec=codec)
    before = run(first, steps[:cut])
    state = first.checkpoint_state()
    run(first, [[("a", 1_000, 40)]])  # What comes after the cut is not in it.
    second = StreamExecutor(QUERIES, SCHEMA)
    second.restore_state(state)
    again = before + run(second, steps[cut:])
    for expected, found in zip(whole, again, strict=True):
        assert [row[:2] for row in found] == [row[:2] for row in expected]
        for (*_, mine), (*_, theirs) in zip(found, expected, strict=True):
            assert all(map(agree, FUNCTIONS, mine[:-1], theirs[:-1])), (mine, theirs)
            assert close(mine[-1], theirs[-1])


def close(left: float | None, right: float | None) -> bool:
    """Return whether two figures agree; with few values, a digest is nearly exact."""
    return left == right or math.isclose(left or 0, right or 0, abs_tol=0.5)


@settings(deadline=None, max_examples=drawn(12))
@given(STEPS)
def test_a_state_that_was_restored_is_written_as_it_was(steps: list) -> None:
    """Goal: nothing is lost or invented by a round trip, in whatever order rows are kept."""
    executor = StreamExecutor(QUERIES, SCHEMA)
    run(executor, steps)
    state = executor.checkpoint_state()
    again = StreamExecutor(QUERIES, SCHEMA)
    again.restore_state(state)
    assert again.checkpoint_state() == state
