"""``laminar retention``: what is printed, what is asked, and how it ends."""

import io
import json
import sys
from functools import partial
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from tests.retention.retention_jobs import StoredJob
from tests.store.stores import damage


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    """Four checkpoints, what a killed driver left of a fifth, and one of its successor."""
    job = StoredJob(LocalObjectStore(tmp_path / "store"))
    job.start()
    for _ in range(4):
        job.complete(forget=1)
    job.attempt(ended=False)
    job.start(4)
    job.complete()
    return job


@pytest.fixture
def laminar(cli, job):
    return partial(run_in, cli, job.store.objects.uri)


def run_in(cli, store, *words):
    return cli("retention", *words, "--store", store)


def test_a_plan_says_what_goes_and_what_stays_and_why(laminar, job) -> None:
    before = job.store.objects.list("payments/")
    answer = laminar("plan", "--keep-last", "2")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "policy: keep_last 2"
    assert lines[1].startswith("3 checkpoints and 6 files go, "), "the total comes first"
    rows = {line.split()[0]: line for line in lines[3:8]}
    assert [row.split()[1] for row in rows.values()] == ["delete"] * 3 + ["keep"] * 2
    assert "older than the last 2 that can be restored" in rows["1"]
    assert "generation 2 started from it" in rows["4"]
    assert "the newest that can be restored" in rows["6"]
    assert sum(line.startswith("quarantine ") for line in lines) == 2
    assert job.store.objects.list("payments/") == before


def test_files_are_named_on_request(laminar) -> None:
    told = laminar("plan", "--keep-last", "2", "--files").out
    assert "delete checkpoints/0000000001/operators/window/state_0.seg (" in told
    assert "deleted with checkpoint 1\n" in told


def test_json_is_everything(laminar) -> None:
    plan = json.loads(laminar("plan", "--keep-last", "2", "--json").out)
    assert list(plan) == [
        "policy",
        "generation",
        "blocked",
        "unfinished_plans",
        "deleted_checkpoints",
        "deleted_files",
        "deleted_bytes",
        "checkpoints",
        "files",
        "abandoned",
        "forgotten",
    ]
    assert (plan["deleted_checkpoints"], plan["deleted_files"]) == ([1, 2, 3], 6)
    assert plan["policy"]["keep_last"] == 2
    assert list(plan["checkpoints"][0]) == [
        "checkpoint_id",
        "action",
        "reasons",
        "size_bytes",
        "completed_at_ms",
    ]
    assert list(plan["files"][0]) == ["path", "action", "reason", "size_bytes", "checkpoint_id"]


def test_applying_deletes_that_and_tells_it(laminar, job) -> None:
    answer = laminar("apply", "--keep-last", "2", "--yes")
    assert (answer.code, answer.err) == (0, "")
    done, quarantined = answer.out.splitlines()[-2:]
    assert done.startswith("done: plan 1 deleted 3 checkpoints and 6 files, ")
    assert quarantined == "2 files put into quarantine"
    assert job.store.manifests.ids() == [4, 6]
    again = laminar("apply", "--keep-last", "2", "--yes")
    assert again.out.splitlines()[1] == "0 checkpoints and 0 files go, 0B"


def test_applying_in_json(laminar) -> None:
    result = json.loads(laminar("apply", "--keep-last", "2", "--yes", "--json").out)["result"]
    assert result["deleted_checkpoints"] == 3
    assert json.loads(laminar("apply", "--yes", "--json").out) == {"result": None}


def test_a_dry_run_is_a_plan(laminar, job) -> None:
    words = ("--keep-last", "2")
    assert laminar("apply", "--dry-run", *words).out == laminar("plan", *words).out
    assert json.loads(laminar("apply", "--dry-run", "--json").out)["deleted_checkpoints"] == [1, 2]
    assert job.store.manifests.ids() == [1, 2, 3, 4, 6]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("said", "code", "left"), [("y\n", 0, [4, 6]), ("n\n", 130, [1, 2, 3, 4, 6])]
)
def test_it_asks(laminar, job, monkeypatch, said, code, left) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(said))
    answer = laminar("apply", "--keep-last", "2")
    assert answer.code == code
    assert "delete this?" in answer.out
    assert job.store.manifests.ids() == left


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_where_nobody_can_be_asked_it_says_so(laminar, job, monkeypatch, words) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    answer = laminar("apply", *words)
    assert answer.code == 2
    assert "give --yes, or --dry-run" in answer.err
    assert job.store.manifests.ids() == [1, 2, 3, 4, 6]


def test_a_policy_file_and_what_is_different(laminar, tmp_path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("keep_last = 4\ndaily = 1\n")
    plan = json.loads(laminar("plan", "--policy", path, "--json").out)
    assert (plan["policy"]["keep_last"], plan["deleted_checkpoints"]) == (4, [1])
    plan = json.loads(laminar("plan", "--policy", path, "--keep-last", "1", "--json").out)
    assert (plan["policy"]["keep_last"], plan["policy"]["daily"]) == (1, 1)
    assert laminar("plan", "--policy", tmp_path / "none.json").code == 2


def test_bad_options_are_refused(laminar) -> None:
    assert laminar("plan", "--keep-last", "0").code == 2
    assert laminar("plan", "--max-age", "soon").code == 2


def test_why_nothing_goes(laminar, job) -> None:
    for number in (1, 2, 3, 4, 6):
        damage(job.store, job.store.paths.manifest(number), "torn")
    answer = laminar("apply", "--yes")
    assert answer.code == 0
    assert "nothing is deleted: no checkpoint can be restored" in answer.out


def test_every_byte_is_read_on_request(laminar, job) -> None:
    damage(job.store, job.store.paths.state(6, "window", 0), "rotten")
    words = ("plan", "--keep-last", "1", "--json")
    assert json.loads(laminar(*words).out)["deleted_checkpoints"] == [1, 2, 3]
    plan = json.loads(laminar(*words, "--verify").out)
    assert plan["checkpoints"][-1]["reasons"] == [
        "newer than the newest that can be restored",
        "it may not be committed yet",
    ] or plan["checkpoints"][-1]["reasons"][0].startswith("newer than")


def test_status(laminar, job) -> None:
    assert json.loads(laminar("status", "--json").out) == {
        "plans": [],
        "quarantine": [],
        "pins": [],
    }
    job.pin(4, until_ms=1)
    laminar("apply", "--keep-last", "2", "--yes", "--reason", "the disk is full")
    told = laminar("status").out
    assert "done" in told
    assert "the disk is full" in told
    assert "in quarantine since" in told
    assert "1970-01-01 00:00:00 (over)" in told
    status = json.loads(laminar("status", "--json").out)
    assert status["plans"][0]["state"] == "done"
    assert status["plans"][0]["result"]["deleted_checkpoints"] == 3
    assert [pin["name"] for pin in status["pins"]] == ["keep"]


def test_an_interrupted_plan_is_reported_and_finished(laminar, job) -> None:
    laminar("apply", "--keep-last", "2", "--yes")
    job.store.objects.delete("payments/retention/0000000001.result.json")
    assert "plan 1 is decided and not finished" in laminar("plan").out
    answer = laminar("apply", "--yes")
    assert "an earlier plan was finished: plan 1 deleted 3 checkpoints" in answer.out


def test_what_is_deleted_is_no_longer_listed_but_remembered(laminar, cli, tmp_path) -> None:
    laminar("apply", "--keep-last", "2", "--yes")
    store = ("--store", tmp_path / "store")
    listed = cli("checkpoints", "list", *store).out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["4", "6"]
    everything = cli("checkpoints", "list", "--all", *store).out.splitlines()
    assert "deleted by retention" in everything[1]
    shown = cli("checkpoints", "show", "1", *store)
    assert shown.code == 2
    assert "checkpoint 1, retention deleted it" in shown.err
    assert cli("checkpoints", "verify", "--all", *store).code == 0


def test_every_apply_is_audited(laminar, cli, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LAMINAR_ACTOR", "nightly schedule")
    monkeypatch.setenv("LAMINAR_RUN_ID", "run-7")
    laminar("apply", "--keep-last", "2", "--yes", "--reason", "the disk is full")
    shown = cli("audit", "show", 1, "--store", tmp_path / "store", "--json").out
    assert (json.loads(shown)["actor"], json.loads(shown)["run_id"]) == (
        "nightly schedule",
        "run-7",
    )
    told = cli("audit", "list", "--store", tmp_path / "store").out
    assert told.count("retention-apply") == 1
    assert "the disk is full" in told
