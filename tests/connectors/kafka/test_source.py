"""The arguments of a source are checked at once, and its description has what a position needs."""

import json
import os
import pickle  # noqa: TID251 - as Spark sends it to the workers
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.connectors.base import Gap
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.kafka import KafkaConnection, KafkaSource
from laminar_core.connectors.kafka.partitions import SPLITS_SCHEMA
from laminar_core.errors import ConfigurationError, IncompatibleStateError
from laminar_core.state.splits import split_table
from tests.connectors.kafka.writing import NUMBERS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"topics": []}, "one or more different names"),
        ({"topics": ["a", "a"]}, "one or more different names"),
        ({"topics": ""}, "one or more different names"),
        ({"topics": 5}, "one or more different names"),
        ({"topics": [5]}, "one or more different names"),
        ({"format": "xml"}, "no format 'xml': choose from json, arrow, raw"),
        ({"format": "raw"}, "the raw format is one column"),
        ({"start": "yesterday"}, "start must be earliest, latest, a time or offsets"),
        ({"start": datetime(2026, 7, 1)}, "a time with a zone"),  # noqa: DTZ001 - the mistake
        ({"start": None}, "start must be earliest, latest, a time or offsets"),
        ({"start": 120}, "start must be earliest, latest, a time or offsets"),
        ({"start": {"t/0": 1.5}}, "start must be earliest, latest, a time or offsets"),
        ({"start": {"t/0": True}}, "start must be earliest, latest, a time or offsets"),
        ({"tombstones": "ignore"}, "tombstones must be one of refuse, skip, not 'ignore'"),
        ({"until": "noon"}, "until must be 'latest' or None"),
        ({"batch_messages": 0}, "batch_messages must be from 1 to 1,000,000"),
        ({"batch_messages": 1_000_001}, "batch_messages must be from 1 to 1,000,000"),
        ({"batch_messages": 1.5}, "batch_messages must be from 1 to 1,000,000"),
        ({"prefetch_bytes": 0}, "prefetch_bytes must be at least 1"),
        ({"prefetch_bytes": "64MiB"}, "prefetch_bytes must be a whole number"),
        ({"metadata": ["colour"]}, "no metadata 'colour'"),
        ({"connection": "broker"}, "write host:port"),
    ],
)
def test_what_cannot_be_is_refused_at_once(changed: dict, why: str) -> None:
    given = {"connection": "b:1", "topics": "t", "columns": NUMBERS} | changed
    if given.get("format") == "raw":
        given["columns"] = pa.schema([("a", pa.string()), ("b", pa.string())])
    with pytest.raises(ConfigurationError, match=why):
        KafkaSource(given.pop("connection"), given.pop("topics"), given.pop("columns"), **given)


def test_the_description_decides_whether_a_position_fits() -> None:
    one = KafkaSource("b:1", "t", NUMBERS)
    moved = KafkaSource("other:9", ["t"], NUMBERS, start="latest", batch_messages=1)
    assert one.describe() == moved.describe()
    others = [
        KafkaSource("b:1", "u", NUMBERS),
        KafkaSource("b:1", "t", pa.schema([("n", pa.int32())])),
        KafkaSource("b:1", "t", NUMBERS, metadata=["offset"]),
        KafkaSource("b:1", "t", NUMBERS, format=JsonFormat(unknown_fields="refuse")),
        KafkaSource("b:1", "t", NUMBERS, tombstones="skip"),
    ]
    assert all(other.describe() != one.describe() for other in others)
    json.dumps(one.describe())


def test_a_gap_within_a_message_goes_on_at_the_first_row_that_is_there() -> None:
    """The position may lie within a message of Arrow; the message that is there is another one."""
    rows = [
        {"split_id": n, "split": f"t/{n}", "offset": "7", "topic": "t", "topic_id": "id",
         "partition": n, "row": 5}
        for n in range(2)
    ]  # fmt: skip
    gap = Gap("t/1", "7", ("20", "30"), 13, "retention")
    source = KafkaSource("b:1", "t", NUMBERS, format="arrow")
    mended = source.mend(split_table(rows, SPLITS_SCHEMA), gap, "earliest")
    assert mended.select(["offset", "row"]).to_pylist() == [
        {"offset": "7", "row": 5},
        {"offset": "20", "row": 0},
    ]


@pytest.mark.parametrize(
    ("gap", "why"),
    [
        (Gap("t/0", "7", ("0", "5"), None, "truncated"), "the messages that are there were read"),
        (Gap("t/0", "7", ("0", "9"), None, "recreated"), "the topic is not the one that was read"),
        (Gap("t/0", "7", None, None, "gone"), "the topic is not the one that was read"),
    ],
)
def test_a_gap_without_a_first_message_to_go_on_at_says_why(gap: Gap, why: str) -> None:
    splits = split_table([{"split_id": 0, "split": "t/0", "offset": "7"}])
    with pytest.raises(IncompatibleStateError, match=f"{why} before: accept source-gap"):
        KafkaSource("b:1", "t", NUMBERS).mend(splits, gap, "earliest")


def test_only_topics_that_are_not_those_that_were_read_are_left_out() -> None:
    source = KafkaSource("b:1", ["t", "u/v"], NUMBERS)
    kept = [
        Gap("t/0", "7", ("20", "30"), 13, "retention"),
        Gap("t/1", "7", None, None, "truncated"),
    ]
    assert source.leave_out({"topics": {}}, kept) == {"topics": {}}
    gone = [Gap("t/0", "7", ("0", "9"), None, "recreated"), Gap("u/v/1", "7", None, None, "gone")]
    assert source.leave_out({"topics": {}}, gone) == {"topics": {}, "left_out": ["t", "u/v"]}


def test_no_secret_is_in_the_description_or_in_what_the_workers_get(monkeypatch) -> None:
    monkeypatch.setenv("LAMINAR_TEST_PASSWORD", "hunter2")
    connection = KafkaConnection("b:1", secrets={"sasl.password": "LAMINAR_TEST_PASSWORD"})
    source = KafkaSource(connection, "t", NUMBERS)
    assert "hunter2" not in repr(source) + json.dumps(source.describe())
    assert b"hunter2" not in pickle.dumps(source)
    assert pickle.loads(pickle.dumps(source)) == source


def test_without_the_client_it_can_be_described_and_says_what_to_install(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["confluent_kafka"] = None
import pyarrow as pa
from laminar_core.connectors.kafka import KafkaSource
from laminar_core.errors import MissingExtraError
source = KafkaSource("b:1", "t", pa.schema([("n", pa.int64())]))
assert source.describe()
for attempt in (source.discovery, lambda: source.gaps(None), lambda: source.open(None)):
    try:
        attempt()
    except MissingExtraError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = "Kafka sources and sinks need: pip install 'laminar-core[kafka]'"
    assert done.stdout.splitlines() == [said] * 3
