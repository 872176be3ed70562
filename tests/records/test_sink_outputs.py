"""A manifest says how many rows each sink has written, and up to which event time."""

import pytest

from laminar_core.records.sink_outputs import (
    COLUMNS,
    ENDED,
    IDLE,
    ROWS_WRITTEN,
    WATERMARK_US,
    EventTimeReached,
    combined,
    outputs_of,
    uri_of,
)
from tests.records.manifests import manifest, subtask


def test_rows_add_up_and_the_slowest_subtask_decides() -> None:
    columns = [["merchant", "string"]]
    first = {ROWS_WRITTEN: 3, WATERMARK_US: 7, COLUMNS: columns}
    parts = (
        subtask("window", 0),
        subtask("window", 1),
        subtask("sink", 0, properties=first),
        subtask("sink", 1, properties={ROWS_WRITTEN: 4, WATERMARK_US: 5}),
    )
    (output,) = outputs_of(manifest(subtasks=parts))
    assert (output.operator_id, output.rows, output.time.watermark_us) == ("sink", 7, 5)
    assert output.columns == (("merchant", "string"),)


def test_an_older_checkpoint_knows_only_rows() -> None:
    parts = [subtask("window", n) for n in (0, 1)]
    parts += [subtask("sink", n, properties={ROWS_WRITTEN: n}) for n in (0, 1)]
    (output,) = outputs_of(manifest(subtasks=tuple(parts)))
    assert (output.rows, output.time.watermark_us, output.columns) == (1, None, ())


@pytest.mark.parametrize("columns", ["text", [["one"]], [[1, 2]], {"a": "b"}, None])
def test_columns_that_cannot_be_read_are_unknown(columns) -> None:
    properties = {ROWS_WRITTEN: 1, COLUMNS: columns, ENDED: "yes", IDLE: 1, WATERMARK_US: True}
    parts = [subtask("window", n) for n in (0, 1)]
    parts += [subtask("sink", n, properties=properties) for n in (0, 1)]
    (output,) = outputs_of(manifest(subtasks=tuple(parts)))
    assert (output.columns, output.time) == ((), EventTimeReached(None))


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        ([], EventTimeReached(None)),
        ([EventTimeReached(7), EventTimeReached(None)], EventTimeReached(None)),
        ([EventTimeReached(7), EventTimeReached(None, idle=True)], EventTimeReached(7)),
        (
            [EventTimeReached(7, idle=True), EventTimeReached(5, idle=True)],
            EventTimeReached(5, idle=True),
        ),
        ([EventTimeReached(3, ended=True), EventTimeReached(7)], EventTimeReached(7)),
        (
            [EventTimeReached(3, ended=True), EventTimeReached(7, ended=True)],
            EventTimeReached(7, ended=True),
        ),
    ],
)
def test_subtasks_that_are_idle_or_ended_hold_nothing_back(parts, together) -> None:
    assert combined(parts) == together


def test_a_sink_of_ones_own_may_say_where_it_writes() -> None:
    assert uri_of({"connector": "sqlite", "uri": "sqlite:///a"}) == "sqlite:///a"
    assert uri_of({"path": "relative"}) is None
    assert uri_of({"kind": "window"}) is None
