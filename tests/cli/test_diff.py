"""Two checkpoints are compared: which keys changed, by how much, and everything around them."""

import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from laminar_core.cli.diff import delta
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.join_states import write_join
from tests.store.stores import JOB, claim, damage
from tests.store.window_states import write_windows


@pytest.fixture
def store(tmp_path) -> CheckpointStore:
    """Checkpoint 2 is after a, c and position 4; b went, d came, e stayed."""
    store = CheckpointStore(LocalObjectStore(tmp_path), JOB)
    claim(store)
    before = [{("a", 0): (1, 5), ("b", 0): (2, 7)}, {("c", 0): (1, 1), ("e", 0): (1, 1)}]
    after = [{("a", 0): (1, 5), ("d", 10): (1, -1)}, {("a", 0): (2, 9), ("e", 0): (1, 1)}]
    after[1]["c", 0] = (1, 4)
    write_windows(store, 1, before, parallelism=1, watermark_s=2, next_row=4)
    write_windows(store, 2, after, parallelism=1, watermark_s=5, next_row=9)
    return store


@pytest.fixture
def diff(cli, store):
    return lambda *words: cli("checkpoints", "diff", *words, "--store", store.objects.uri)


def objects(answer) -> list[dict]:
    assert (answer.code, answer.err) == (0, "")
    return [json.loads(line) for line in answer.out.splitlines()]


def test_a_checkpoint_does_not_differ_from_itself(diff):
    assert diff(2, 2).out == "nothing has changed\n"


def test_one_line_a_fact_and_a_key(diff):
    answer = diff(1, 2)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert [line for line in lines if "size_bytes" not in line] == [
        (
            "vertex totals 0: watermark_us 1970-01-01 00:00:02.000000 -> 1970-01-01 00:00:05.000000"
            " (+3.000000 s)"
        ),
        (
            "totals 0: watermark_us 1970-01-01 00:00:02.000000 -> 1970-01-01 00:00:05.000000"
            " (+3.000000 s)"
        ),
        "totals 0: late_row_count 2 -> 4 (+2)",
        "in: 0 added, 0 removed, 1 changed, 0 unchanged",
        "  ~ split_id=0: offset 4 -> 9, rows_read 4 -> 9 (+5)",
        "totals: 1 added, 1 removed, 2 changed, 1 unchanged",
        "  + merchant=d, window_start=1970-01-01 00:00:10+00:00: count(*)=1, sum(amount)=-1",
        "  - merchant=b, window_start=1970-01-01 00:00:00+00:00: count(*)=2, sum(amount)=7",
        (
            "  ~ merchant=a, window_start=1970-01-01 00:00:00+00:00: count(*) 1 -> 3 (+2),"
            " sum(amount) 5 -> 14 (+9)"
        ),
        "  ~ merchant=c, window_start=1970-01-01 00:00:00+00:00: sum(amount) 1 -> 4 (+3)",
    ]


def test_the_other_way_round_everything_is_reversed(diff):
    assert "totals: 1 added, 1 removed, 2 changed" in diff(2, 1).out
    assert "  ~ split_id=0: offset 9 -> 4, rows_read 9 -> 4 (-5)" in diff(2, 1).out


def test_a_limit_counts_keys_of_each_kind(diff):
    out = diff(1, 2, "--operator", "totals", "--limit", 1).out
    assert out.count("  ~ ") == out.count("  + ") == 1
    assert "  … and 1 more changed; --limit or --json prints them" in out
    assert "  ~ " not in diff(1, 2, "--limit", 0).out


def test_one_operator_only(diff):
    out = diff(1, 2, "--operator", "in").out
    assert "split_id" in out
    assert "merchant" not in out
    assert "late_row_count" not in out


def test_json_has_one_object_per_line(diff):
    found = objects(diff(1, 2, "--json"))
    rows = [line for line in found if line["record"] == "row" and line["operator_id"] == "totals"]
    assert rows == [
        {
            "record": "row",
            "operator_id": "totals",
            "change": "added",
            "key": {"merchant": "d", "window_start": "1970-01-01T00:00:10Z"},
            "after": {"count(*)": 1, "sum(amount)": -1},
        },
        {
            "record": "row",
            "operator_id": "totals",
            "change": "removed",
            "key": {"merchant": "b", "window_start": "1970-01-01T00:00:00Z"},
            "before": {"count(*)": 2, "sum(amount)": 7},
        },
        {
            "record": "row",
            "operator_id": "totals",
            "change": "changed",
            "key": {"merchant": "a", "window_start": "1970-01-01T00:00:00Z"},
            "before": {"count(*)": 1, "sum(amount)": 5},
            "after": {"count(*)": 3, "sum(amount)": 14},
            "delta": {"count(*)": 2, "sum(amount)": 9},
        },
        {
            "record": "row",
            "operator_id": "totals",
            "change": "changed",
            "key": {"merchant": "c", "window_start": "1970-01-01T00:00:00Z"},
            "before": {"sum(amount)": 1},
            "after": {"sum(amount)": 4},
            "delta": {"sum(amount)": 3},
        },
    ]
    (summary,) = [
        line for line in found if line["record"] == "operator" and line["operator_id"] == "totals"
    ]
    assert (summary["added"], summary["changed"], summary["unchanged"]) == (1, 2, 1)
    (late,) = [line for line in found if line.get("name") == "late_row_count"]
    assert (late["before"], late["after"], late["delta"]) == (2, 4, 2)
    assert (late["subject"], late["operator_id"]) == ("totals 0", "totals")
    assert len(objects(diff(1, 2, "--json", "--limit", 0))) == len(found) - len(rows) - 1


def test_what_cannot_be_compared_is_said(cli, store):
    written = write_windows(store, 3, [], parallelism=1)
    rows = pa.table({"list": [[1]]})
    for number in (4, 5):
        write_windows(store, number, [], parallelism=1)
        segment = store.parts.write_state(CheckpointId(number), "out", 0, rows)
        entries = [
            e.model_copy(update={"segments": (segment,)}) if e.operator_id == "out" else e
            for e in written.subtasks
        ]
        changed = written.model_copy(
            update={"checkpoint_id": number + 2, "parent_checkpoint_id": 3, "subtasks": (*entries,)}
        )
        store.objects.put(store.paths.manifest(CheckpointId(number + 2)), changed.to_bytes())
    out = cli("checkpoints", "diff", 6, 7, "--store", store.objects.uri).out
    assert "out: 0 added, 0 removed, 0 changed, 0 unchanged (its rows have no key, and list" in out
    assert "it had 1 rows and has 1)" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((1, 9), "no completed checkpoint 9"),
        ((1, 2, "--operator", "sum"), "has no operator sum; its operators: in, totals, out"),
    ],
)
def test_a_refusal_is_one_line(diff, words, message):
    answer = diff(*words)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1


def test_ids_are_asked_for(diff):
    assert diff(1).code == 2


def test_a_damaged_file_is_named(diff, store):
    segment = store.manifests.read(CheckpointId(2)).subtasks[1].segments[0]
    damage(store, store.paths.absolute(segment.path), "rotten")
    answer = diff(1, 2, "--operator", "totals", "--json")
    assert answer.code == 5
    assert segment.path in answer.err


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        (1, 3, 2),
        (1.5, 1.0, -0.5),
        (Decimal("1.10"), Decimal("1.00"), Decimal("-0.10")),
        (True, False, None),
        ("a", "b", None),
        (None, 3, None),
        (1, 1.5, None),
    ],
)
def test_numbers_have_a_difference(before, after, by):
    assert delta(before, after) == by


def test_infinity_has_none_that_is_a_number():
    by = delta(math.inf, math.inf)
    assert isinstance(by, float)
    assert math.isnan(by)


def test_tables_of_an_operator_are_told_apart(cli, tmp_path):
    store = CheckpointStore(LocalObjectStore(tmp_path), JOB)
    write_join(store, 1, {"a": (1, 5)}, {"a": "x"}, expired_us=0)
    write_join(store, 2, {"a": (3, 5)}, {"a": "x"}, expired_us=0)
    words = ("checkpoints", "diff", 1, 2, "--operator", "join", "--store", store.objects.uri)
    lines = cli(*words).out.splitlines()
    assert [line for line in lines if "size_bytes" not in line] == [
        "join, table left: 0 added, 0 removed, 1 changed, 0 unchanged",
        "  ~ key=a: left 1 -> 3 (+2)",
    ]
    found = objects(cli(*words, "--json"))
    assert [line["table"] for line in found if line["record"] == "operator"] == ["left", "right"]
    assert [line["table"] for line in found if line["record"] == "row"] == ["left"]
