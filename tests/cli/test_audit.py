"""The acts of a job are listed, shown and verified, also if somebody touched them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.records.paths import JobPaths
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import claimant

PATHS = JobPaths("payments")
NOON_MS = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)


def open_log(root: Path, key: bytes | None = None) -> AuditLog:
    times = iter(range(NOON_MS, NOON_MS + 10**9, 3_600_000))
    return AuditLog(LocalObjectStore(root), PATHS, lambda: next(times), key=key)


def fill(log: AuditLog) -> None:
    """A claim at noon, a restore an hour later, a retention that failed."""
    log.append(
        action="claim", actor=Actor("ann", reason="deployed [blue]"), after={"generation": 1}
    )
    log.append(
        action="restore",
        actor=Actor("ann", reason="deployed"),
        before={"rejected": []},
        after={"generation": 1, "checkpoint_id": 12},
    )
    nightly = Actor("nightly", ActorKind.SCHEDULE, "keep 3", "run-7")
    intended = log.append(action="retention", actor=nightly)
    log.conclude(intended, "failed", reason="the disk is full")


@pytest.fixture
def laminar(cli, tmp_path):
    fill(open_log(tmp_path))
    return lambda *words: cli("audit", *words, "--store", tmp_path)


def numbers(answer) -> list[str]:
    return [line.split()[0] for line in answer.out.splitlines()[1:]]


class TestList:
    def test_one_line_an_act(self, laminar):
        answer = laminar("list")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.splitlines()[1].rstrip().split(maxsplit=7) == [
            *("1", "2026-11-21", "12:00:00", "claim", "intended", "ann", "1", "deployed [blue]")
        ]
        assert numbers(answer) == ["1", "2", "3", "4"]

    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            (("--action", "claim"), ["1"]),
            (("--action", "claim", "--action", "restore"), ["1", "2"]),
            (("--actor", "nightly"), ["3", "4"]),
            (("--action", "claim", "--actor", "nightly"), []),
            (("--since", "2026-11-21 14:00"), ["3", "4"]),
            (("--since", "2026-11-21T14:00:01"), ["4"]),
            (("--since", "2026-11-22"), []),
            (("--since", "2026-11-21"), ["1", "2", "3", "4"]),
        ],
    )
    def test_filters(self, laminar, words, wanted):
        assert numbers(laminar("list", *words)) == wanted

    def test_a_time_that_is_none_is_refused(self, laminar):
        assert laminar("list", "--since", "yesterday").code == 2

    def test_json_has_every_field(self, laminar):
        records = json.loads(laminar("list", "--json", "--actor", "nightly").out)
        assert [(r["number"], r["outcome"], r["intent"]) for r in records] == [
            (3, "intended", None),
            (4, "failed", 3),
        ]
        assert records[0]["run_id"] == "run-7"
        assert records[0]["writer"]["pid"] > 0

    def test_what_became_of_an_act_is_in_the_store_or_in_a_later_record(self, laminar, tmp_path):
        store = CheckpointStore(LocalObjectStore(tmp_path), "payments")
        said = [line.split()[4] for line in laminar("list").out.splitlines()[1:]]
        assert said == ["intended", "intended", "failed", "failed"], "nothing was claimed yet"
        log = open_log(tmp_path)
        announced = log.read(1).reference()
        store.claims.claim(replace(claimant(), announced=announced), wait_ms=lambda _: None)
        store.generations.record_base(Generation(1), CheckpointId(12))
        said = [line.split()[4] for line in laminar("list").out.splitlines()[1:]]
        assert said == ["done", "done", "failed", "failed"]
        records = json.loads(laminar("list", "--json").out)
        assert [r["result"] for r in records] == said
        assert [r["outcome"] for r in records] == ["intended", "intended", "intended", "failed"]
        assert laminar("show", 2).out.startswith("record 2 of payments: restore, done\n")
        assert json.loads(laminar("show", 2, "--json").out)["result"] == "done"

    def test_what_cannot_be_read_is_left_out_and_said(self, laminar, tmp_path):
        LocalObjectStore(tmp_path).put(PATHS.audit_record(2), b"rot")
        answer = laminar("list")
        assert numbers(answer) == ["1", "3", "4"]
        assert "some records are missing or unreadable: see `laminar audit verify`" in answer.err

    def test_a_job_from_before_the_log_has_an_empty_one(self, cli, tmp_path):
        LocalObjectStore(tmp_path).put("old/checkpoints/x", b"")
        answer = cli("audit", "list", "--store", tmp_path)
        assert (answer.code, numbers(answer), answer.err) == (0, [], "")
        assert cli("audit", "verify", "--store", tmp_path).out == "the audit log is empty\n"


class TestShow:
    def test_everything_that_was_written_down(self, laminar):
        answer = laminar("show", 2)
        assert answer.code == 0
        first, second, third, *facts = answer.out.splitlines()
        assert first == "record 2 of payments: restore, intended"
        assert second == "at 2026-11-21 13:00:00 by ann: deployed"
        assert "laminar 0." in third
        assert third.endswith("not signed")
        assert facts == [
            "before:",
            "  rejected: []",
            "after:",
            "  generation: 1",
            "  checkpoint_id: 12",
        ]

    def test_an_outcome_says_of_what(self, laminar):
        answer = laminar("show", 4)
        assert "record 4 of payments: retention, failed, the outcome of record 3" in answer.out
        assert ", run run-7, not signed" in answer.out

    def test_json(self, laminar):
        assert json.loads(laminar("show", 2, "--json").out)["after"]["checkpoint_id"] == 12

    def test_there_must_be_one(self, laminar):
        answer = laminar("show", 9)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err == (
            "error: the audit log of payments has no record 9: see `laminar audit list`\n"
        )

    def test_one_that_cannot_be_read(self, laminar, tmp_path):
        LocalObjectStore(tmp_path).put(PATHS.audit_record(2), b"rot")
        answer = laminar("show", 2)
        assert answer.code == 5
        assert "0000000002.json: it is not what was written" in answer.err


class TestVerify:
    def test_a_log_as_it_was_written_is_whole(self, laminar):
        answer = laminar("verify")
        assert answer.code == 0
        assert answer.out.startswith(
            "the audit log is intact: 4 records, signatures not checked, the newest has SHA-256 "
        )

    def test_one_line_per_finding_and_exit_code_5(self, laminar, tmp_path):
        objects = LocalObjectStore(tmp_path)
        objects.put(PATHS.audit_record(2), b"rot")
        objects.delete(PATHS.audit_record(4))
        answer = laminar("verify")
        assert answer.code == 5
        assert answer.out.splitlines() == [
            "unreadable: record 2: it is not what was written: its own digest is missing",
            "missing: record 4 is cut off: head.json names 4",
            "the audit log is not as it was written: 3 records, signatures not checked",
        ]

    def test_what_was_looked_into_can_be_left_out(self, laminar, tmp_path):
        LocalObjectStore(tmp_path).put(PATHS.audit_record(2), b"rot")
        assert laminar("verify", "--from", 3).code == 0
        assert laminar("verify", "--from", 2).code == 5

    def test_what_was_looked_into_has_to_be_there_still(self, laminar):
        assert laminar("verify", "--from", 5).code == 0
        answer = laminar("verify", "--from", 6)
        assert answer.code == 5
        assert "missing: the newest record is 4: 5 was looked into" in answer.out

    def test_json(self, laminar, tmp_path):
        whole = json.loads(laminar("verify", "--json").out)
        assert (whole["ok"], whole["record_count"], whole["newest"]["number"]) == (True, 4, 4)
        LocalObjectStore(tmp_path).delete(PATHS.audit_record(1))
        answer = laminar("verify", "--json")
        assert answer.code == 5
        assert json.loads(answer.out)["findings"] == [
            {"kind": "missing", "number": 1, "problem": "record 1 is missing"}
        ]

    def test_a_key_is_found_by_its_name(self, cli, tmp_path, monkeypatch):
        fill(open_log(tmp_path, key=b"secret"))

        def verify(key: str):
            monkeypatch.setenv("AUDIT_KEY", key)
            return cli("audit", "verify", "--store", tmp_path, "--key-env", "AUDIT_KEY")

        assert verify("secret").code == 0
        answer = verify("another")
        assert answer.code == 5
        assert "unsigned: no record is signed with this key" in answer.out
        assert "secret" not in answer.out + answer.err

    def test_what_is_in_the_environment_signs_and_verifies(self, cli, tmp_path, monkeypatch):
        monkeypatch.setenv("LAMINAR_AUDIT_KEY", "secret")
        fill(open_log(tmp_path))
        assert "4 records, signatures checked" in cli("audit", "verify", "--store", tmp_path).out
        monkeypatch.setenv("LAMINAR_AUDIT_KEY", "another")
        assert cli("audit", "verify", "--store", tmp_path).code == 5
        monkeypatch.delenv("LAMINAR_AUDIT_KEY")
        assert cli("audit", "verify", "--store", tmp_path).code == 0

    def test_a_key_that_is_not_set_is_said(self, laminar, monkeypatch):
        monkeypatch.delenv("AUDIT_KEY", raising=False)
        answer = laminar("verify", "--key-env", "AUDIT_KEY")
        assert (answer.code, answer.out) == (2, "")
        assert "the environment variable AUDIT_KEY is not set" in answer.err
