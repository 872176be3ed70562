"""The contents of a store are listed, shown and verified, also if they are damaged."""

import json
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest, HistoryRecord
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.manifests import Manifests
from tests.store.stores import claim, commit, complete, damage, trigger

GOLDEN = Path(__file__).parents[1] / "golden"
MANIFEST = "payments/checkpoints/{:010}/manifest.json"
STATE = "payments/checkpoints/{:010}/operators/window/state_{}.seg"


class Job:
    """A job with checkpoints 1 and 2, the first committed, and a third that was given up."""

    def __init__(self, root: Path, name: str = "payments") -> None:
        self.root = root
        self.store = CheckpointStore(LocalObjectStore(root), name)
        self.generation = claim(self.store)

    def filled(self) -> "Job":
        for checkpoint_id in (1, 2):
            complete(self.store, checkpoint_id, self.generation)
        commit(self.store, 1, self.generation)
        given_up = trigger(3, self.generation)
        assert self.store.attempts.record_trigger(given_up)
        self.store.attempts.record_outcome(
            HistoryRecord(
                checkpoint_id=3,
                generation=self.generation,
                kind=given_up.kind,
                outcome="expired",
                reason="took longer than [10 minutes]",
                triggered_at_ms=1,
                ended_at_ms=600_001,
                duration_ms=600_000,
            )
        )
        return self


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path).filled()


@pytest.fixture
def laminar(cli, job: Job):
    """``laminar("list")`` is ``laminar checkpoints list --store …``."""
    return lambda *words: cli("checkpoints", *words, "--store", job.root)


def ids(answer) -> list[str]:
    return [line.split()[0] for line in answer.out.splitlines()[1:]]


# --- list ---------------------------------------------------------------------------------------


def test_completed_checkpoints_are_listed_oldest_first(laminar) -> None:
    answer = laminar("list")
    assert (answer.code, answer.err) == (0, "")
    assert ids(answer) == ["1", "2"]
    heading, first, second = answer.out.splitlines()
    assert heading.split() == [
        *("id", "outcome", "kind", "mode", "triggered", "ms", "size", "written", "in-flight"),
        "generation",
        "remarks",
    ]
    assert first.split()[1:4] == ["completed", "periodic", "aligned"]
    assert first.rstrip().endswith("committed")
    assert "committed" not in second


def test_all_attempts_are_listed_on_request_with_the_reason_as_it_is(laminar) -> None:
    answer = laminar("list", "--all")
    assert ids(answer) == ["1", "2", "3"]
    assert "expired" in answer.out
    assert "took longer than [10 minutes]" in answer.out


def test_a_list_has_the_same_fields_for_ever(laminar) -> None:
    (first, _, last) = json.loads(laminar("list", "--all", "--json").out)
    assert first == {
        "checkpoint_id": 1,
        "outcome": "completed",
        "reason": "",
        "generation": 1,
        "kind": "periodic",
        "mode": "aligned",
        "triggered_at_ms": 1_700_000_000_000,
        "duration_ms": 40.5,
        "size_bytes": first["size_bytes"],
        "written_bytes": first["size_bytes"],
        "inflight_bytes": 0,
        "committed": True,
        "orphan": False,
        "deleted": False,
        "problem": None,
        "withdrawn": False,
        "damaged": False,
        "pins": [],
    }
    assert first["size_bytes"] > 0
    assert list(last) == list(first)
    assert (last["outcome"], last["reason"]) == ("expired", "took longer than [10 minutes]")


@pytest.mark.parametrize("how", ["torn", "rotten"])
def test_a_manifest_that_cannot_be_read_does_not_vanish_from_the_list(laminar, job, how) -> None:
    data = b"{" if how == "torn" else b"\xff\xfe"
    job.store.objects.put(MANIFEST.format(2), data)
    answer = laminar("list")
    assert ids(answer) == ["1", "2"]
    assert "unreadable" in answer.out
    assert "manifest.json" in answer.out


def test_an_orphan_is_marked(laminar, job: Job) -> None:
    """A later generation went back to checkpoint 1: the second is off the timeline."""
    later = claim(job.store, base=1)
    complete(job.store, 4, later)
    listed = {line.split()[0]: line for line in laminar("list").out.splitlines()}
    assert "orphan" in listed["2"]
    assert "orphan" not in listed["1"] + listed["4"]


def test_output_that_was_taken_back_is_not_called_committed(laminar, job: Job) -> None:
    commit(job.store, 2, job.generation)
    claim(job.store, base=1)
    listed = {line.split()[0]: line.rstrip() for line in laminar("list").out.splitlines()}
    assert listed["2"].endswith("output withdrawn, orphan")
    assert listed["1"].endswith("committed")
    told = {one["checkpoint_id"]: one for one in json.loads(laminar("list", "--json").out)}
    assert [told[n]["withdrawn"] for n in (1, 2)] == [False, True]


# --- show ---------------------------------------------------------------------------------------


def test_one_checkpoint_is_shown(laminar) -> None:
    answer = laminar("show", "2")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(
        "checkpoint 2 of payments: periodic, aligned, generation 1, parent 1\n"
        "triggered 2023-11-14 22:13:20, complete after 40 ms, "
    )
    assert answer.out.count("window") == 2


def test_the_newest_is_shown_if_no_id_is_given_as_the_other_commands_take_it(laminar) -> None:
    assert laminar("show").out == laminar("show", 2).out
    for command in ("show", "read", "verify"):
        assert laminar(command).code == 0
    shown = json.loads(laminar("show", "--json").out)
    assert shown["checkpoint_id"] == 2


def test_json_is_the_whole_manifest_with_an_entry_for_each_channel(laminar, job: Job) -> None:
    shown = laminar("show", "2", "--json").out
    stored = job.store.objects.get(MANIFEST.format(2))
    assert stored is not None
    assert CheckpointManifest.model_validate_json(shown) == parse_manifest(stored)
    before = json.loads((GOLDEN / "manifest_v6_unaligned.json").read_bytes())
    del before["sha256"]
    assert list(json.loads(shown)) in (list(before), [*before, "audited"])


@pytest.mark.parametrize("wanted", [3, 99])
@pytest.mark.parametrize("command", ["show", "verify", "read"])
def test_a_checkpoint_that_never_completed_is_refused(laminar, command: str, wanted: int) -> None:
    answer = laminar(command, wanted)
    assert (answer.code, answer.out) == (2, "")
    assert f"has no completed checkpoint {wanted}: see `laminar checkpoints list`" in answer.err


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format_version": 2}', b"[1"], ids=str)
def test_an_unreadable_manifest_is_reported_with_its_path(laminar, job: Job, data: bytes) -> None:
    job.store.objects.put(MANIFEST.format(1), data)
    answer = laminar("show", "1")
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.count("\n") == 1
    assert MANIFEST.format(1) in answer.err


# --- verify -------------------------------------------------------------------------------------


def test_the_newest_checkpoint_is_verified(laminar) -> None:
    answer = laminar("verify")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("checkpoint 2 is intact: 2 files, ")


def test_every_checkpoint_is_verified_on_request(laminar) -> None:
    lines = laminar("verify", "--all").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "checkpoint 1 is intact",
        "checkpoint 2 is intact",
    ]


def half_deleted(store: CheckpointStore) -> None:
    """Stop retention when it has deleted one file of checkpoint 1."""
    written = store.manifests.read(CheckpointId(1))
    store.objects.put(store.paths.deletion(CheckpointId(1)), b"{}")
    store.objects.delete(store.paths.absolute(written.subtasks[1].segments[0].path))


@pytest.mark.parametrize("words", [("verify", "1"), ("read", "1"), ("diff", "1", "2")])
def test_what_retention_deletes_is_not_called_damaged(laminar, job: Job, words) -> None:
    half_deleted(job.store)
    answer = laminar(*words)
    assert answer.code == 2
    assert "checkpoint 1 of job payments is being deleted by retention" in answer.err


@pytest.mark.parametrize("gone", ["the manifest", "a part"])
def test_all_leaves_out_what_is_deleted_meanwhile(laminar, job, monkeypatch, gone: str) -> None:
    if gone == "the manifest":
        job.store.objects.delete(job.store.paths.manifest(CheckpointId(1)))
    else:
        half_deleted(job.store)
    monkeypatch.setattr(Manifests, "ids", lambda _: [CheckpointId(1), CheckpointId(2)])
    answer = laminar("verify", "--all")
    assert answer.code == 0
    assert answer.out.startswith("checkpoint 2 is intact")
    assert answer.err == "checkpoint 1 is skipped: retention deletes it\n"


def test_an_id_and_all_contradict_each_other(laminar) -> None:
    answer = laminar("verify", "1", "--all")
    assert answer.code == 2
    assert "give an id, or --all" in answer.err


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", "is missing"),
        ("torn", "bytes instead of"),
        ("rotten", "its sha256 differs"),
        ("longer", "bytes instead of"),
    ],
)
def test_a_damaged_file_is_named(laminar, job: Job, how: str, said: str) -> None:
    damage(job.store, STATE.format(2, 1), how)
    answer = laminar("verify", "--all")
    assert answer.code == 5
    whole, damaged, problem = answer.out.splitlines()
    assert whole.startswith("checkpoint 1 is intact")
    assert damaged.startswith("checkpoint 2 is damaged")
    assert STATE.format(2, 1) in problem
    assert said in problem


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_a_damaged_manifest_is_named(laminar, job: Job, as_json: tuple[str, ...]) -> None:
    job.store.objects.put(MANIFEST.format(2), b"{")
    answer = laminar("verify", *as_json)
    assert answer.code == 5
    assert MANIFEST.format(2) in answer.out


def test_a_report_has_the_same_fields_for_ever(laminar, job: Job) -> None:
    damage(job.store, STATE.format(2, 1), "missing")
    answer = laminar("verify", "2", "--json")
    (report,) = json.loads(answer.out)
    problem = f"{job.root}/{STATE.format(2, 1)} is missing"
    first, second = report.pop("parts")
    assert report == {"checkpoint_id": 2, "ok": False, "problem": problem}
    relative = STATE.removeprefix("payments/")
    assert first == {
        "path": relative.format(2, 0),
        "size_bytes": first["size_bytes"],
        "problem": None,
    }
    assert second["problem"] == problem


# --- which job ----------------------------------------------------------------------------------

COMMANDS = pytest.mark.parametrize(
    "words", [("list",), ("show", "1"), ("verify",), ("read",)], ids=str
)


@COMMANDS
def test_a_choice_of_jobs_is_asked_for(laminar, job: Job, words: tuple[str, ...]) -> None:
    Job(job.root, "slippage")
    answer = laminar(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "has the jobs payments, slippage: choose one with --job" in answer.err
    assert laminar(*words, "--job", "payments").code == 0


@COMMANDS
def test_a_job_that_is_not_there_is_refused(laminar, words: tuple[str, ...]) -> None:
    answer = laminar(*words, "--job", "payment")
    assert (answer.code, answer.out) == (2, "")
    assert "has no job payment; its jobs: payments" in answer.err


@COMMANDS
@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
def test_an_empty_store_is_refused_and_stays_as_it_is(cli, tmp_path, words, there) -> None:
    root = tmp_path / "store"
    if there:
        root.mkdir()
    answer = cli("checkpoints", *words, "--store", root)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"error: the store {root} has no jobs\n"
    assert root.exists() == there
    assert list(root.glob("*")) == []


def test_a_job_without_checkpoints_has_none_to_verify(cli, tmp_path: Path) -> None:
    Job(tmp_path)
    assert ids(cli("checkpoints", "list", "--store", tmp_path)) == []
    assert cli("checkpoints", "list", "--json", "--store", tmp_path).out == "[]\n"
    answer = cli("checkpoints", "verify", "--store", tmp_path)
    assert answer.code == 2
    assert answer.err == "error: job payments has no completed checkpoint\n"


def test_the_probe_of_a_store_is_no_job(laminar, job: Job) -> None:
    job.store.objects.put("_probe/1", b"")
    assert laminar("list").code == 0


def test_the_store_may_come_from_the_environment(cli, job, monkeypatch) -> None:
    monkeypatch.setenv("LAMINAR_STORE", str(job.root))
    assert ids(cli("checkpoints", "list")) == ["1", "2"]
    assert "has no jobs" in cli("checkpoints", "list", "--store", job.root / "other").err


def test_a_store_of_an_unknown_kind_is_refused(cli) -> None:
    answer = cli("checkpoints", "list", "--store", "gopher://hole")
    assert answer.code == 2
    assert "gopher" in answer.err


def test_nothing_is_written_by_looking(laminar, job: Job) -> None:
    before = {path: path.stat().st_mtime_ns for path in job.root.rglob("*")}
    for words in (("list", "--all"), ("show", "1"), ("verify", "--all"), ("read",)):
        laminar(*words)
    assert {path: path.stat().st_mtime_ns for path in job.root.rglob("*")} == before


def test_the_newest_is_the_highest_id(laminar, job: Job) -> None:
    complete(job.store, 10, job.generation)
    assert laminar("verify").out.startswith("checkpoint 10 is intact")
    assert job.store.manifests.ids() == [CheckpointId(n) for n in (1, 2, 10)]
