import json
from functools import partial
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.store.pins import Pins
from tests.retention.retention_jobs import StoredJob
from tests.store.stores import damage


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    job = StoredJob(LocalObjectStore(tmp_path / "store"))
    job.start()
    for _ in range(3):
        job.complete()
    return job


@pytest.fixture
def laminar(cli, job):
    return partial(run_in, cli, job.store.objects.uri)


def run_in(cli, store, *words):
    return cli("checkpoints", *words, "--store", store)


def test_a_pin_is_shown_and_taken_away(laminar, job) -> None:
    answer = laminar("pin", "1", "--name", "audit", "--reason", "to compare")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "checkpoint 1 is pinned as audit\n"
    assert "pinned (audit)" in laminar("list").out.splitlines()[1]
    assert "pinned (audit)" in laminar("show", "1").out
    first = json.loads(laminar("list", "--json").out)[0]
    assert [(p["name"], p["reason"], p["expires_at_ms"]) for p in first["pins"]] == [
        ("audit", "to compare", None)
    ]
    answer = laminar("unpin", "1", "--name", "audit")
    assert answer.out == "checkpoint 1 is no longer pinned as audit\n"
    assert Pins(job.store).list() == []


def test_who_pins_is_audited(laminar, cli, job, monkeypatch) -> None:
    monkeypatch.setenv("LAMINAR_ACTOR", "ann")
    monkeypatch.setenv("LAMINAR_RUN_ID", "run-7")
    laminar("pin", "1")
    laminar("unpin", "1")
    for number in (1, 2, 3):
        shown = cli("audit", "show", number, "--store", job.store.objects.uri, "--json").out
        assert (json.loads(shown)["actor"], json.loads(shown)["run_id"]) == ("ann", "run-7")


def test_a_hold_longer_than_records_can_say_ends_with_them(laminar, job) -> None:
    laminar("pin", "2", "--for", "50000000 days")
    (pin,) = Pins(job.store).list()
    assert pin.record.expires_at_ms == TIME_MS_MAX


def test_a_hold_ends(laminar) -> None:
    assert laminar("pin", "1", "--for", "2 days").out == "checkpoint 1 is held for 2 days as pin\n"
    assert "held until 20" in laminar("list").out
    (pin,) = json.loads(laminar("list", "--json").out)[0]["pins"]
    assert pin["expires_at_ms"] - pin["created_at_ms"] == 2 * 86_400_000


def test_json(laminar) -> None:
    pin = json.loads(laminar("pin", "2", "--json").out)
    assert (pin["checkpoint_id"], pin["name"]) == (2, "pin")
    assert json.loads(laminar("unpin", "2", "--json").out) == {"checkpoint_id": 2, "name": "pin"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pin", "9"), "has no completed checkpoint 9 to pin"),
        (("pin", "1", "--name", "a/b"), "names no pin"),
        (("unpin", "1"), "checkpoint 1 has no pin named pin"),
        (("pin", "0"), "0 is not in the range"),
        (("pin", "9" * 20), "is no number of a checkpoint"),
        (("pin", "1", "--reason", "b\udcff"), "which is not UTF-8"),
        (("pin", "1", "--for", "ever"), "is not a duration"),
    ],
)
def test_what_cannot_be_is_refused(laminar, job, words, said) -> None:
    answer = laminar(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert Pins(job.store).list() == []


def test_a_pin_that_cannot_be_read_is_reported_and_can_be_taken_away(laminar, job) -> None:
    laminar("pin", "1")
    damage(job.store, "payments/pins/0000000001-pin.json", "torn")
    (pin,) = json.loads(laminar("list", "--json").out)[0]["pins"]
    assert "digest" in pin["problem"]
    assert laminar("unpin", "1").code == 0


def test_every_pin_is_audited(laminar, cli, tmp_path) -> None:
    laminar("pin", "1", "--reason", "to compare")
    laminar("pin", "9")
    laminar("unpin", "1")
    records = json.loads(cli("audit", "list", "--json", "--store", tmp_path / "store").out)
    assert [(r["action"], r["outcome"]) for r in records] == [
        ("pin", "intended"),
        ("pin", "done"),
        ("pin", "intended"),
        ("pin", "failed"),
        ("unpin", "intended"),
    ]
    assert records[0]["reason"] == "to compare"
    assert records[4]["before"]["reason"] == "to compare"
