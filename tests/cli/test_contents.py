"""``laminar checkpoints read``: every row and mark with the place where it was."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from laminar_core.cli.contents import Content, print_contents, print_contents_as_json, value_text
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.codec.inflight_files import batch
from tests.records.manifests import edge, rows
from tests.store.join_states import write_join
from tests.store.stores import capture, claim, complete, damage, with_inflight, write

BUF = "payments/checkpoints/0000000002/operators/inflight_1.buf"
WAITING = "window subtask 1, input 3 (from source 1 to keyed 1, its input edge 0)"
LOGGED = "window subtask 0, output 3 (from tail 0 to head 0, its input edge 1, fed back)"


@pytest.fixture
def store(tmp_path) -> CheckpointStore:
    """Checkpoint 1 is aligned; in 2 a barrier overtook elements, and a loop logged one row."""
    store = CheckpointStore(LocalObjectStore(tmp_path), "payments")
    generation = claim(store)
    complete(store, 1, generation)
    written = write(store, 2, generation, rows(7, 8))
    captured = capture(store, 2, subtask_index=1)
    logged = capture(
        store,
        2,
        [batch(("z", 9))],
        "output",
        edge=edge(upstream="tail", downstream="head", input_index=1, feedback=True),
    )
    store.manifests.publish(with_inflight(written, captured, logged))
    return store


@pytest.fixture
def read(cli, store):
    """``read("2")`` is ``laminar checkpoints read 2 --store …``."""
    return lambda *words: cli("checkpoints", "read", *words, "--store", store.objects.uri)


def objects(answer) -> list[dict]:
    return [json.loads(line) for line in answer.out.splitlines()]


class TestInflight:
    def test_elements_are_printed_in_the_order_of_each_queue(self, read) -> None:
        answer = read("2", "--inflight")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.splitlines() == [
            f"{WAITING}: 6 events, 4 rows",
            "  watermark before all time",
            "  merchant=a, amount=1",
            "  merchant=b, amount=None",
            "  merchant=None, amount=2",
            "  idle",
            "  merchant=c, amount=3",
            "  watermark the end of the input",
            f"{LOGGED}: 1 events, 1 rows",
            "  merchant=z, amount=9",
        ]

    def test_json_is_one_object_per_row_and_mark(self, read) -> None:
        found = objects(read("2", "--inflight", "--json"))
        place = {
            "operator_id": "window",
            "subtask_index": 1,
            "direction": "input",
            "input_id": 3,
            "upstream": "source",
            "downstream": "keyed",
            "input_index": 0,
            "feedback": False,
            "sender": 1,
            "receiver": 1,
        }
        assert found[0] == place | {
            "position": 0,
            "element": "watermark",
            "watermark_us": -(2**63),
        }
        assert found[2] == place | {
            "position": 1,
            "element": "row",
            "row": {"merchant": "b", "amount": None},
        }
        assert found[4] == place | {"position": 2, "element": "idle"}
        assert [line["position"] for line in found] == [0, 1, 1, 1, 2, 3, 5, 0]

    def test_the_newest_checkpoint_is_read_by_default(self, read) -> None:
        assert read("--inflight").out == read("2", "--inflight").out

    @pytest.mark.parametrize(
        ("words", "count"),
        [
            (("--operator", "window"), 8),
            (("--operator", "sink"), 0),
            (("--subtask", "1"), 7),
            (("--input-id", "3"), 8),
            (("--input-id", "0"), 0),
            (("--subtask", "0", "--input-id", "3"), 1),
        ],
    )
    def test_one_queue_can_be_chosen(self, read, words, count) -> None:
        answer = read("2", "--inflight", "--json", *words)
        assert (answer.code, len(objects(answer))) == (0, count)
        nothing = "checkpoint 2: nothing was in flight there\n"
        assert answer.err == ("" if count else nothing)

    def test_an_aligned_checkpoint_has_nothing_in_flight(self, read) -> None:
        answer = read("1", "--inflight")
        assert (answer.code, answer.out) == (0, "")
        assert answer.err == "checkpoint 1: nothing was in flight in it, its mode is aligned\n"

    def test_a_damaged_file_is_one_line(self, read, store) -> None:
        damage(store, BUF, "rotten")
        answer = read("2", "--inflight")
        assert (answer.code, answer.out) == (5, "")
        assert answer.err.count("\n") == 1
        assert BUF in answer.err

    def test_verify_reads_it_too(self, cli, store) -> None:
        assert cli("checkpoints", "verify", "2", "--store", store.objects.uri).code == 0
        damage(store, BUF, "rotten")
        answer = cli("checkpoints", "verify", "2", "--store", store.objects.uri)
        assert answer.code == 5
        assert BUF in answer.out

    def test_a_damaged_file_spoils_no_other(self, read, store) -> None:
        damage(store, BUF, "missing")
        assert len(objects(read("2", "--inflight", "--subtask", "0", "--json"))) == 1


class TestState:
    def test_rows_of_every_subtask_are_printed(self, read) -> None:
        answer = read("2")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.splitlines() == [
            "window subtask 0: 2 rows",
            "  key=k7, value=7",
            "  key=k8, value=8",
            "window subtask 1: 2 rows",
            "  key=k7, value=7",
            "  key=k8, value=8",
            "sink subtask 0: 0 rows",
            "sink subtask 1: 0 rows",
        ]

    def test_json_says_whose_row_it_is(self, read) -> None:
        found = objects(read("1", "--json", "--subtask", "1", "--operator", "window"))
        assert found[0] == {
            "operator_id": "window",
            "subtask_index": 1,
            "element": "row",
            "row": {"key": "k1", "value": 1},
        }
        assert len(found) == 2

    def test_an_input_has_no_state(self, read) -> None:
        answer = read("2", "--input-id", "1")
        assert (answer.code, answer.out) == (2, "")
        assert "--input-id needs --inflight" in answer.err


class TestRequests:
    @pytest.mark.parametrize("inflight", [(), ("--inflight",)], ids=["state", "inflight"])
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--operator", "ghost"), "has no operator ghost; its operators: window, sink"),
            (("--subtask", "2"), "has no subtask 2 of any operator: they count from 0 to 1"),
            (("--operator", "sink", "--subtask", "2"), "has no subtask 2 of sink"),
        ],
    )
    def test_a_part_that_is_not_there_is_refused(self, read, inflight, words, said) -> None:
        answer = read("2", *inflight, *words)
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err
        assert answer.err.count("\n") == 1

    def test_a_checkpoint_that_never_completed_is_refused(self, read) -> None:
        answer = read("99")
        assert answer.code == 2
        assert "no completed checkpoint 99" in answer.err

    @pytest.mark.parametrize("words", [(), ("--inflight",)], ids=str)
    def test_a_job_without_checkpoints_has_nothing_to_read(self, cli, tmp_path, words) -> None:
        claim(CheckpointStore(LocalObjectStore(tmp_path), "payments"))
        answer = cli("checkpoints", "read", *words, "--store", tmp_path)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err == "error: job payments has no completed checkpoint\n"

    def test_the_limit_counts_rows_and_marks_of_each_file(self, read) -> None:
        lines = read("2", "--inflight", "--limit", "2").out.splitlines()
        assert lines[1:4] == [
            "  watermark before all time",
            "  merchant=a, amount=1",
            "  … and 5 more; --limit or --json prints them",
        ]
        assert "more" not in read("2", "--inflight", "--limit", "7").out
        assert len(objects(read("2", "--inflight", "--limit", "2", "--json"))) == 3
        assert read("2", "--limit", "0").out.splitlines()[1] == (
            "  … and 2 more; --limit or --json prints them"
        )

    def test_without_a_limit_people_see_twenty_and_programs_all(self, read, store) -> None:
        store.manifests.publish(write(store, 3, 1, rows(*range(25))))
        assert read("3", "--operator", "window").out.count("key=") == 2 * 20
        assert len(objects(read("3", "--operator", "window", "--json"))) == 2 * 25


def content(table: pa.Table, title: str = "x") -> Content:
    lines = ({"element": "row", "row": row} for row in table.to_pylist())
    return Content(title, {}, table.num_rows, lines)


def test_what_json_does_not_know_is_written_all_the_same(capsys) -> None:
    at = datetime(2024, 1, 2, tzinfo=UTC)
    print_contents_as_json(
        [content(pa.table({"b": [b"\xff"], "f": [float("inf")], "t": [at]}))], None
    )
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["row"] == {"b": "_w==", "f": "Infinity", "t": "2024-01-02T00:00:00Z"}


def test_rows_that_are_not_printed_are_not_made(capsys) -> None:
    def rows_made():
        yield {"element": "row", "row": {"x": 1}}
        raise AssertionError("one more than asked for")

    print_contents([Content("t", {}, 1_000_000, rows_made())], limit=1)
    assert capsys.readouterr().out.splitlines() == [
        "t",
        "  x=1",
        "  … and 999,999 more; --limit or --json prints them",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"ab", "b'ab'"), (b"x" * 2_048, "<2.0KiB>"), ("x" * 99, "x" * 99), (None, "None")],
    ids=["short", "sketch", "text", "null"],
)
def test_of_a_sketch_people_see_its_size(value: object, shown: str) -> None:
    assert value_text(value) == shown


def test_each_table_of_an_operator_has_a_heading_of_its_own(cli, tmp_path) -> None:
    store = CheckpointStore(LocalObjectStore(tmp_path), "payments")
    write_join(store, 1, {"a": (1, 5), "b": (2, 9)}, {"a": "x"}, expired_us=5)
    words = ("checkpoints", "read", "1", "--operator", "join", "--store", store.objects.uri)
    answer = cli(*words)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "join subtask 0 table left: 1 rows in 2 files",
        "  key_group=1, key=b, left=2, _expires=9",
        "join subtask 0 table right: 1 rows",
        "  key_group=1, key=a, said=x",
    ]
    found = objects(cli(*words, "--json"))
    assert [(line["table"], line["row"]["key"]) for line in found] == [
        ("left", "b"),
        ("right", "a"),
    ]
