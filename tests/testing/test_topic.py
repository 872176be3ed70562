"""The topic in memory fences and commits as a broker does; jobs on it are in tests/simulated."""

import pyarrow as pa
import pytest

from laminar_core.connectors.outlook import Committable, Committed, Lost
from laminar_core.errors import FencedError
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.paths import JobPaths
from laminar_core.records.staged import staged_files
from laminar_core.store.staging import StagingArea
from laminar_core.testing.topic import Topic, TopicSink

ROWS = pa.record_batch({"id": [1, 2, 3]})


@pytest.fixture
def staging() -> StagingArea:
    return StagingArea(MemoryObjectStore(), JobPaths("payments"), "out")


def offer(sink: TopicSink, staging: StagingArea, checkpoint_id: int, generation: int = 1):
    context = SubtaskContext("out", 0, 1, 128, Generation(generation), staging=staging)
    writer = sink.open(context, ROWS.schema)
    writer.write(ROWS)
    return writer.snapshot(CheckpointId(checkpoint_id))().committables


def test_rows_and_marker_appear_at_once_and_only_once(staging):
    topic = Topic()
    sink = TopicSink(topic)
    committer, parts = sink.committer(staging), offer(sink, staging, 3)
    committer.take_over(Generation(1))
    assert committer.outlook(CheckpointId(3), parts) == Committable()
    for _ in range(2):
        committer.commit(CheckpointId(3), parts)
    assert (topic.rows(), topic.marker) == ([{"id": n} for n in (1, 2, 3)], 3)
    committer.commit(CheckpointId(4), parts)  # Carried by the next checkpoint.
    assert len(topic.rows()) == 3
    assert committer.outlook(CheckpointId(4), parts) == Committed()


def test_the_last_one_to_take_over_is_the_only_one_that_writes(staging):
    topic = Topic()
    sink = TopicSink(topic)
    first, second = sink.committer(staging), sink.committer(staging)
    first.take_over(Generation(1))
    second.take_over(Generation(2))
    with pytest.raises(FencedError):
        first.commit(CheckpointId(3), offer(sink, staging, 3))
    assert topic.rows() == []


def test_what_was_open_at_a_take_over_is_aborted(staging):
    topic = Topic(open_rows=[ROWS], open_marker=CheckpointId(3))
    TopicSink(topic).committer(staging).take_over(Generation(1))
    topic.publish()
    assert (topic.rows(), topic.marker) == ([], None)


def test_staged_rows_that_are_gone_are_counted(staging):
    sink = TopicSink(Topic())
    parts = offer(sink, staging, 3)
    staging.delete(staged_files(parts))
    lost = sink.committer(staging).outlook(CheckpointId(3), parts)
    assert isinstance(lost, Lost)
    assert (lost.rows, lost.gone) == (3, list(parts))
