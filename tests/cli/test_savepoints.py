"""Savepoints on the command line: made of checkpoints, listed, shown, verified."""

import json
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import JOB, claim, complete


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    store = CheckpointStore(LocalObjectStore(tmp_path / "store"), JOB)
    generation = claim(store)
    for checkpoint_id in (1, 2):
        complete(store, checkpoint_id, generation)
    return store


@pytest.fixture
def exported(cli, store: CheckpointStore, tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("LAMINAR_RUN_ID", "run-7")
    answer = cli("savepoint", "export", "--store", store.objects.uri, 2, tmp_path / "all/s")
    assert (answer.code, answer.err) == (0, "")
    return tmp_path / "all/s"


def test_a_checkpoint_is_exported_and_that_is_audited(store, exported):
    assert (exported / "savepoint.json").exists()
    log = AuditLog(store.objects, store.paths, lambda: 0)
    acts = [(r.run_id, r.outcome) for r in log.records() if r.action == "export"]
    assert acts == [("run-7", "intended"), ("run-7", "done")]


def test_exporting_into_it_again_is_refused(cli, store, exported):
    answer = cli("savepoint", "export", "--store", store.objects.uri, 1, exported)
    assert answer.code == 2
    assert f"{exported} is not empty" in answer.err


def test_a_checkpoint_that_was_given_up_is_not_exported(cli, store, tmp_path):
    claim(store, base=1)
    answer = cli("savepoint", "export", "--store", store.objects.uri, 2, tmp_path / "s")
    assert answer.code == 2
    assert "was restored to an older checkpoint than 2" in answer.err
    assert not (tmp_path / "s").exists()


def test_a_folder_is_listed(cli, exported):
    (exported.parent / "half/operators").mkdir(parents=True)
    heading, line = cli("savepoint", "list", exported.parent).out.splitlines()
    assert heading.split()[:4] == ["savepoint", "created", "job", "checkpoint"]
    assert line.split()[0] == "s"
    assert line.split()[3:5] == ["payments", "2"]
    listed = json.loads(cli("savepoint", "list", "--json", exported.parent).out)
    assert [(one["savepoint"], one["problem"]) for one in listed] == [(str(exported), None)]


def test_one_is_shown_with_where_it_comes_from(cli, exported):
    shown = cli("savepoint", "show", exported).out
    assert shown.startswith("of checkpoint 2 of job payments in ")
    assert "canonical: yes" in shown
    assert "window" in shown
    assert json.loads(cli("savepoint", "show", "--json", exported).out)["actor"]


def test_damage_is_found_and_has_its_exit_code(cli, exported):
    assert cli("savepoint", "verify", exported).code == 0
    (exported / "operators/window/state_0.seg").write_bytes(b"rot")
    answer = cli("savepoint", "verify", "--json", exported)
    assert answer.code == 5
    assert not json.loads(answer.out)["ok"]
    (exported / "savepoint.json").write_bytes(b"rot")
    answer = cli("savepoint", "verify", exported)
    assert answer.code == 5
    assert answer.err.startswith(f"error: {exported}/savepoint.json: ")


@pytest.mark.parametrize("word", ["show", "verify"])
def test_what_is_no_savepoint_is_said(cli, tmp_path, word):
    answer = cli("savepoint", word, tmp_path / "nothing")
    assert (answer.code, answer.out) == (2, "")
    assert "there is nothing at" in answer.err


def test_help_names_the_commands_and_no_target_is_asked_for(cli):
    shown = cli("savepoint", "--help").out
    for word in ("take", "export", "list", "show", "verify"):
        assert f"  {word} " in shown
